// Node.js with amqplib: ask for a reminder in two seconds, hear that it was accepted, and take it.
//
//   cd examples/node && npm install && AMQP_URL=amqp://guest:guest@localhost:5672/%2F node index.js

const { randomUUID } = require('node:crypto');
const amqp = require('amqplib');

const url = process.env.AMQP_URL || 'amqp://guest:guest@localhost:5672/%2F';

async function main() {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  const job = randomUUID();

  // The sidecar's answers come back on this channel. Consume before publishing.
  const answered = new Promise((resolve) => {
    channel.consume('amq.rabbitmq.reply-to', resolve, { noAck: true });
  });
  // With `mandatory` a message that no queue takes comes back: no sidecar is listening.
  channel.on('return', () => {
    console.error('no sidecar has ever started on this virtual host');
    process.exit(1);
  });

  const now = Date.now();
  channel.publish('schedule.commands', 'request', Buffer.from(JSON.stringify({
    id: job,
    job_type: 'invoice.reminder',
    payload: { invoice: 42 },
    run_at: new Date(now + 2000).toISOString(),
    issued_at: new Date(now).toISOString(),
  })), {
    mandatory: true, persistent: true, contentType: 'application/json',
    replyTo: 'amq.rabbitmq.reply-to', correlationId: job,
  });
  await channel.waitForConfirms();

  const answer = await answered;
  const body = JSON.parse(answer.content);
  if (answer.properties.type !== 'ScheduleAccepted') throw new Error(JSON.stringify(body.errors));
  console.log(`accepted ${job}, next run at ${body.next_run_at}`);

  await channel.prefetch(10);
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error('no reminder came: does `scheduler producer` run?')), 30000);
    channel.consume('mainapp_due', (message) => {
      const event = JSON.parse(message.content);
      // Handle it here, then acknowledge. The same event_id may come twice: skip it then.
      channel.ack(message);
      console.log(`reminded of invoice ${event.payload.invoice}, due at ${event.due_at}`);
      if (event.job_id !== job) return;
      clearTimeout(late);
      resolve();
    });
  });
  await channel.close();
  await connection.close();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
