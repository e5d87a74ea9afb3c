// pg-boss: `prepare` stores the jobs, `work` handles them.
import * as common from "./common.mjs";

const { PgBoss } = common.require("pg-boss");
const boss = new PgBoss({ connectionString: common.DATABASE_URL, max: 10, supervise: false, schedule: false });
boss.on("error", (error) => console.error(error));

async function prepare() {
  await boss.start();
  await boss.createQueue("handle");
  const times = common.dueTimes();
  for (let start = 0; start < times.length; start += 1000) {
    await boss.insert("handle", times.slice(start, start + 1000).map((due) => (
      { data: { due }, startAfter: new Date(due * 1000) })));
  }
  await boss.stop();
}

async function work() {
  const { batchSize, localConcurrency, pollingIntervalSeconds } = common.SETTINGS;
  await boss.start();
  if (common.PUBLISHES) await common.connect();
  await common.waitForGo();
  await boss.work("handle", { batchSize, localConcurrency, pollingIntervalSeconds, burstWhenBatchFull: true }, async (jobs) => {
    common.begin();
    if (common.PUBLISHES) {
      await Promise.all(jobs.map(async (job) => { await common.publish(); common.end(job.data.due); }));
    } else {
      for (const job of jobs) common.end(job.data.due);
    }
  });
}

await { prepare, work }[process.argv[2]]();
