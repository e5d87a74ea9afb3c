# frozen_string_literal: true

# A host in Ruby: schedule and cancel reminders, consume events without duplicates, report a result.
#
#   gem install bunny     (Debian: apt-get install ruby-bunny)
#   AMQP_URL=amqp://guest:guest@localhost:5672/%2F ruby host.rb

require "bunny"
require "json"
require "securerandom"
require "set"
require "time"

connection = Bunny.new(ENV.fetch("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")).start
channel = connection.create_channel
channel.confirm_select
commands = channel.topic("schedule.commands", passive: true)
commands.on_return { abort "no queue: start the sidecar once on this virtual host" }

# Publish a command or a result, and wait for the broker's confirm.
send_command = lambda do |key, body|
  commands.publish(JSON.generate(body), routing_key: key, mandatory: true, persistent: true,
                                        content_type: "application/json")
  channel.wait_for_confirms or abort "the broker rejected the message"
end

at = ->(seconds = 0) { (Time.now.utc + seconds).iso8601(6) } # as issued_at: the latest command for a job wins

job = SecureRandom.uuid # keep it with your invoice: the same id replaces or cancels the job
send_command.call("request", {
  id: job, job_type: "invoice.reminder", payload: { invoice: 42 }, run_at: at.call(2), issued_at: at.call,
  run: { max_attempts: 3, timeout: 60 } # tracked: retried until `succeeded` is reported
})
puts "requested #{job}"

unwanted = SecureRandom.uuid
send_command.call("request", { id: unwanted, job_type: "invoice.reminder", cron: "0 9 * * 1", issued_at: at.call })
send_command.call("cancel", { id: unwanted, issued_at: at.call })
puts "cancelled #{unwanted}"

# Events have a channel of their own: a handler publishes on the other one and waits for its confirm.
consuming = connection.create_channel
consuming.prefetch(10)
handled = Set.new # a table with a primary key in a real host, in the transaction of the effect
done = Queue.new
consuming.queue("mainapp_due", passive: true).subscribe(manual_ack: true) do |delivery, _, body|
  event = JSON.parse(body)
  attempt = event.dig("run", "attempt")
  if handled.add?([event["event_id"], attempt]) # each attempt of a run is new work
    puts "reminded of invoice #{event.dig("payload", "invoice")}, due at #{event["due_at"]}"
  else
    puts "skipped a duplicate of invoice #{event.dig("payload", "invoice")}"
  end
  if attempt
    send_command.call("result", { event_id: event["event_id"], attempt: attempt, status: "succeeded",
                                  worker: "ruby-1" })
    puts "reported attempt #{attempt}"
  end
  consuming.ack(delivery.delivery_tag)
  done << true if event["job_id"] == job
end
done.pop
connection.close
