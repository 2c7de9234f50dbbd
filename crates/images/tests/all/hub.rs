//! The project's real images, made from packages of Debian, PyPI and npm, and used. Run by
//! `make hub-test`.

use std::time::Instant;

use images::{Builder, Recipe};

use crate::Fixture;

const INTERPRETER: &str = r#"
python3 /opt/interpreter/interpreter.py &
for attempt in $(seq 100); do curl -sf localhost:8888/health >/dev/null && break; sleep 0.2; done
ask() { curl -sSN --max-time 30 localhost:8888/execute -d "$1" >/tmp/answer; cat /tmp/answer; }
says() { grep -qF "$1" /tmp/answer; }
ask '{"code": "x = 41\nprint(\"out\")\nx + 1"}'
says '"type": "stdout", "text": "out\n"' && says '"is_main_result": true, "text": "42"' && says '"execution_count": 1'
ask '{"code": "x / 0"}'; says '"name": "ZeroDivisionError"'
ask '{"code": "import time; time.sleep(60)", "timeout": 1}'; says '"name": "TimeoutError"'
ask '{"code": "import threading\nwhile True: print(1)", "timeout": 1}' >/dev/null; says '"name": "TimeoutError"'
ask '{"code": "x"}'; says '"text": "41"'
ask '{"code": "import os\nos.environ[\"A\"]", "env_vars": {"A": "é😀\u2028"}}'; says '"text": "'
ask '{"code": "os.environ.get(\"A\")"}'; ! says '"text"'
ask '{"code": "os._exit(3)"}'; says '"name": "KernelDied"'
ask '{"code": "x"}'; says '"name": "NameError"'
ask '{"code": "import matplotlib.pyplot as p, pandas\np.plot([1, 2]); p.show()"}' >/dev/null; says '"png": "'
ask '{"code": "const a: number = 41; console.log(\"out\"); a + 1", "language": "typescript"}'
says '"text": "out\n"' && says '"text": "42"'
ask '{"code": "a", "language": "javascript"}'; says '"text": "41"'
ask '{"code": "1", "language": "cobol"}'; says 'javascript, python, typescript'
id=$(curl -s localhost:8888/contexts -d '{"cwd": "/opt"}' | jq -r .id)
ask "{\"code\": \"import os; print(os.getcwd())\", \"context_id\": \"$id\"}"; says '/opt'
curl -sf -X DELETE "localhost:8888/contexts/$id"
ask "{\"code\": \"1\", \"context_id\": \"$id\"}"; says 'no such context'
"#;

/// Commands that must work inside each image.
const CHECKS: [(&str, &str); 8] = [
    (
        "holm/debian",
        "git --version && python3 -m venv /tmp/venv && curl --version && ip -V && jq --version",
    ),
    (
        "holm/base",
        "node --version && npm --version && npx --version && apk add --no-cache sqlite py3-requests && sqlite3 --version && \
         ash -c 'source /etc/profile; function f() { [[ $1 == a ]] && type ls; }; f a' | grep /bin/ls",
    ),
    ("holm/node", "pnpm --version && yarn --version"),
    ("holm/py-app", "python3 -c 'import fastapi, uvicorn' && uv --version"),
    (
        "holm/ts-app",
        "echo 'const a: number = 1; console.log(a)' >/tmp/a.ts && tsc --version && tsx /tmp/a.ts",
    ),
    (
        "holm/nextjs",
        "(npm --prefix /blaxel/app run dev &) && curl -sf --retry 60 --retry-connrefused --retry-delay 1 localhost:3000 | grep 'A new application'",
    ),
    (
        "holm/vite",
        "cd app && (npm run dev &) && curl -sf --retry 60 --retry-connrefused --retry-delay 1 localhost:5173 | grep root",
    ),
    ("holm/jupyter-server", INTERPRETER),
];

#[test]
#[ignore = "takes minutes, and needs the servers of Debian, PyPI and npm"]
fn every_image_of_the_project_can_be_made_and_used() {
    let (fixture, builder) = (Fixture::new(), Builder::new("bookworm"));
    let recipes = Recipe::all().unwrap();
    assert_eq!(recipes.len(), CHECKS.len());
    for recipe in &recipes {
        let start = Instant::now();
        let step = |step: images::Step<'_>| {
            println!("{:6.1} s  {} {}", start.elapsed().as_secs_f64(), step.image, step.what)
        };
        fixture.store.make(recipe, &builder, step).unwrap();
        let image = fixture.store.resolve(&recipe.name).unwrap().unwrap();
        println!(
            "{:6.1} s  {} has {} MB",
            start.elapsed().as_secs_f64(),
            recipe.name,
            image.size_bytes / 1_000_000
        );
        let (_, check) = CHECKS.iter().find(|(name, _)| *name == recipe.name.path()).unwrap();
        let text = format!("name = \"check\"\nfrom = \"{}\"\nrun = ['''{check}''']", recipe.name);
        let check = Recipe::read(&text, |_| Ok(Vec::new())).unwrap();
        fixture.store.make(&check, &builder, |_| {}).unwrap_or_else(|error| panic!("{error}"));
    }
}
