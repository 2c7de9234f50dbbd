// A job: each task gets its arguments as `--name value`.
//
// holm run job {{name}} --data '[{"city": "Bonn"}, {"city": "Köln"}]'

// Replace this with what a task does. An exception makes it fail, and it is tried again.
async function task(given) {
  console.log(`task ${process.env.TASK_INDEX ?? "0"}:`, given);
}

const words = process.argv.slice(2);
const given = {};
for (let at = 0; at + 1 < words.length; at += 2) given[words[at].replace(/^--/, "")] = words[at + 1];
task(given);
