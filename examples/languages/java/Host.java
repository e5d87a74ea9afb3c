// A host in Java: schedule and cancel reminders, consume events without duplicates, report a result.
//
//   javac -cp amqp-client.jar Host.java && AMQP_URL=… java -cp amqp-client.jar:slf4j-api.jar:. Host
//
// It needs com.rabbitmq:amqp-client (Debian: librabbitmq-client-java). A real host uses its JSON library; the two small
// functions at the end keep this one free of further dependencies.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.MessageProperties;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Host {
    private final Channel commands;

    Host(Connection connection) throws IOException {
        commands = connection.createChannel();
        commands.confirmSelect();
        commands.addReturnListener((code, text, exchange, key, properties, body) -> {
            System.err.println("no queue: start the sidecar once on this virtual host");
            System.exit(1);
        });
    }

    /** Publish a command or a result, and wait for the broker's confirm. */
    void send(String key, String json) throws Exception {
        AMQP.BasicProperties persistent = MessageProperties.PERSISTENT_BASIC.builder().contentType("application/json").build();
        commands.basicPublish("schedule.commands", key, true, persistent, json.getBytes(StandardCharsets.UTF_8));
        commands.waitForConfirmsOrDie(30_000);
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv().getOrDefault("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F"));
        try (Connection connection = factory.newConnection()) {
            Host host = new Host(connection);
            UUID job = UUID.randomUUID(); // keep it with your invoice: the same id replaces or cancels the job
            Instant now = Instant.now();
            host.send("request", """
                {"id": "%s", "job_type": "invoice.reminder", "payload": {"invoice": 42}, "run_at": "%s",
                 "issued_at": "%s", "run": {"max_attempts": 3, "timeout": 60}}
                """.formatted(job, now.plusSeconds(2), now)); // the latest issued_at wins; `run`: retried until `succeeded`
            System.out.println("requested " + job);

            UUID unwanted = UUID.randomUUID();
            host.send("request", """
                {"id": "%s", "job_type": "invoice.reminder", "cron": "0 9 * * 1", "issued_at": "%s"}
                """.formatted(unwanted, now));
            host.send("cancel", """
                {"id": "%s", "issued_at": "%s"}""".formatted(unwanted, Instant.now()));
            System.out.println("cancelled " + unwanted);

            CountDownLatch done = new CountDownLatch(1);
            Channel events = connection.createChannel();
            events.basicQos(10);
            events.basicConsume("mainapp_due", false, host.new Reminders(events, job.toString(), done));
            done.await();
        }
    }

    /** Handles the events. */
    class Reminders extends DefaultConsumer {
        private final String job;
        private final CountDownLatch done;
        // A table with a primary key in a real host, in the transaction of the effect.
        private final Set<String> handled = ConcurrentHashMap.newKeySet();

        Reminders(Channel channel, String job, CountDownLatch done) {
            super(channel);
            this.job = job;
            this.done = done;
        }

        @Override
        public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                throws IOException {
            String event = new String(body, StandardCharsets.UTF_8);
            String id = text(event, "event_id"), attempt = number(event, "attempt"); // null if it is not tracked
            String invoice = number(event, "invoice");
            if (handled.add(id + " " + attempt)) { // each attempt of a run is new work
                System.out.println("reminded of invoice " + invoice + ", due at " + text(event, "due_at"));
            } else {
                System.out.println("skipped a duplicate of invoice " + invoice);
            }
            if (attempt != null) {
                try {
                    send("result", """
                        {"event_id": "%s", "attempt": %s, "status": "succeeded", "worker": "java-1"}"""
                        .formatted(id, attempt));
                } catch (Exception problem) {
                    throw new IOException(problem);
                }
                System.out.println("reported attempt " + attempt);
            }
            getChannel().basicAck(envelope.getDeliveryTag(), false);
            if (text(event, "job_id").equals(job)) {
                done.countDown();
            }
        }
    }

    static String text(String json, String name) {
        return first(json, name, "\"([^\"]*)\"");
    }

    static String number(String json, String name) {
        return first(json, name, "(\\d+)");
    }

    private static String first(String json, String name, String value) {
        Matcher found = Pattern.compile("\"" + name + "\"\\s*:\\s*" + value).matcher(json);
        return found.find() ? found.group(1) : null;
    }
}
