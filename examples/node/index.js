// Node.js with amqplib: request a tracked reminder in two seconds, wait for the reply, consume the reminder, and report
// success. After a failure, or a crash of this program, the event would be redelivered.
//
//   cd examples/node && npm install && AMQP_URL=amqp://guest:guest@localhost:5672/%2F node index.js

const { randomUUID } = require('node:crypto');
const amqp = require('amqplib');

const url = process.env.AMQP_URL || 'amqp://guest:guest@localhost:5672/%2F';

async function main() {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();

  // The sidecar's replies arrive on this channel. Consume before publishing.
  const waiting = new Map();
  await channel.consume('amq.rabbitmq.reply-to', (message) => {
    const { type, correlationId } = message.properties;
    waiting.get(correlationId)?.({ type, ...JSON.parse(message.content) });
  }, { noAck: true });
  // With `mandatory` an unroutable message is returned: no sidecar is listening.
  channel.on('return', () => {
    console.error('no sidecar has ever started on this virtual host');
    process.exit(1);
  });

  // Publish a command or a result, and resolve with the reply.
  async function send(key, body) {
    const correlationId = randomUUID();
    const replied = new Promise((resolve) => { waiting.set(correlationId, resolve); });
    channel.publish('schedule.commands', key, Buffer.from(JSON.stringify(body)), {
      mandatory: true, persistent: true, contentType: 'application/json',
      replyTo: 'amq.rabbitmq.reply-to', correlationId,
    });
    await channel.waitForConfirms();
    const reply = await replied;
    waiting.delete(correlationId);
    if (reply.type === 'ScheduleRejected') throw new Error(JSON.stringify(reply.errors));
    return reply;
  }

  const now = Date.now();
  const job = randomUUID();
  const accepted = await send('request', {
    id: job,
    job_type: 'invoice.reminder',
    payload: { invoice: 42 },
    run_at: new Date(now + 2000).toISOString(),
    issued_at: new Date(now).toISOString(),
    run: { timeout: 60, max_attempts: 3 }, // tracked: it is retried until `succeeded` is reported
  });
  console.log(`accepted ${job}, next run at ${accepted.next_run_at}`);

  await channel.prefetch(10);
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error('no reminder arrived: does `scheduler producer` run?')), 30000);
    channel.consume('mainapp_due', (message) => {
      const event = JSON.parse(message.content);
      handle(event).then(() => {
        channel.ack(message);
        if (event.job_id !== job) return;
        clearTimeout(late);
        resolve();
      }, reject);
    });
  });

  // The same event_id may arrive twice: skip work that is already done, and report `succeeded` again.
  async function handle(event) {
    console.log(`reminded of invoice ${event.payload.invoice}, due at ${event.due_at}`);
    if (!event.run) return; // the job is not tracked: no result is expected
    const { status } = await send('result', {
      event_id: event.event_id,
      attempt: event.run.attempt,
      status: 'succeeded', // or `failed` with an `error`, `running` with a `heartbeat`, `snoozed` with `retry_in`
      output: { sent: true },
      worker: 'node-1',
    });
    console.log(`result of attempt ${event.run.attempt} ${status}`);
  }

  await channel.close();
  await connection.close();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
