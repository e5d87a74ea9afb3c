// A host in TypeScript: schedule and cancel reminders, consume events without duplicates, report a result.
//
//   npm install && npm run build && AMQP_URL=amqp://guest:guest@localhost:5672/%2F npm start
//
// The types of the messages are generated: copy schemas/messages.d.ts into your project.

import { randomUUID } from 'node:crypto';
import amqp from 'amqplib';
import type { ScheduleCancel, ScheduleDue, ScheduleRequest, ScheduleResult } from '../../../schemas/messages';

type Commands = { request: ScheduleRequest; cancel: ScheduleCancel; result: ScheduleResult };

async function main(): Promise<void> {
  const connection = await amqp.connect(process.env.AMQP_URL ?? 'amqp://guest:guest@localhost:5672/%2F');
  const channel = await connection.createConfirmChannel();
  channel.on('return', () => { throw new Error('no queue: start the sidecar once on this virtual host'); });

  /** Publish a command or a result, and wait for the broker's confirm. */
  async function send<Key extends keyof Commands>(key: Key, body: Commands[Key]): Promise<void> {
    channel.publish('schedule.commands', key, Buffer.from(JSON.stringify(body)),
      { persistent: true, mandatory: true, contentType: 'application/json' });
    await channel.waitForConfirms();
  }

  const issued = () => new Date().toISOString(); // the latest command for a job wins

  const job = randomUUID(); // keep it with your invoice: the same id replaces or cancels the job
  await send('request', {
    id: job, job_type: 'invoice.reminder', payload: { invoice: 42 }, issued_at: issued(),
    run_at: new Date(Date.now() + 2000).toISOString(),
    run: { max_attempts: 3, timeout: 60 }, // tracked: retried until `succeeded` is reported
  });
  console.log(`requested ${job}`);

  const unwanted = randomUUID();
  await send('request', { id: unwanted, job_type: 'invoice.reminder', issued_at: issued(), cron: '0 9 * * 1' });
  await send('cancel', { id: unwanted, issued_at: issued() });
  console.log(`cancelled ${unwanted}`);

  const handled = new Set<string>(); // a table with a primary key in a real host, in the transaction of the effect
  await channel.prefetch(10);
  await new Promise<void>((resolve, reject) => {
    async function handle(message: amqp.ConsumeMessage): Promise<void> {
      const event = JSON.parse(message.content.toString()) as ScheduleDue;
      const attempt = event.run?.attempt;
      const key = `${event.event_id} ${attempt ?? ''}`; // each attempt of a run is new work
      if (handled.has(key)) {
        console.log(`skipped a duplicate of invoice ${event.payload.invoice}`);
      } else {
        console.log(`reminded of invoice ${event.payload.invoice}, due at ${event.due_at}`);
        handled.add(key);
      }
      if (attempt !== undefined) {
        await send('result', { event_id: event.event_id, attempt, status: 'succeeded', worker: 'typescript-1' });
        console.log(`reported attempt ${attempt}`);
      }
      channel.ack(message);
      if (event.job_id === job) resolve();
    }
    channel.consume('mainapp_due', (message) => { if (message) handle(message).catch(reject); }).catch(reject);
  });
  await channel.close();
  await connection.close();
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
