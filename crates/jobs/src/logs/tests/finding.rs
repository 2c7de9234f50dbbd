//! Compares questions with a naive model: all lines in one list.

use super::{NOW, open};
use crate::logs::find::find_in_steps;
use crate::logs::line::{Line, write};
use crate::logs::{Found, Question, Severity, Source};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use store::Store;
use store::logs::{Chunk, Mark, Printer, append};
use types::KindName;
use types::ids::{ExecutionId, WorkspaceId};
use types::instance::Stream;

#[derive(Debug, Clone)]
struct Written {
    source: Source,
    lines: Vec<Line>,
}

const WORDS: [&str; 5] = ["alpha", "Beta_100%", "GAMMA", "Ünder", "a\\b\0"];

/// Generates chunks that overlap in time, of several executions, jobs and workspaces.
fn any_writing() -> impl Strategy<Value = Vec<Written>> {
    let line = (0..5_usize, 0..7_usize, 1..400_i64, proptest::option::of(0..2_u8));
    let chunk = (0..5_usize, 0..3_u32, 0..3000_i64, proptest::collection::vec(line, 1..6));
    proptest::collection::vec(chunk, 0..40).prop_map(|chunks| {
        let written = |(number, (from, task, at_ms, lines)): (usize, (usize, u32, i64, Vec<_>))| {
            let mut at_ns = NOW.plus_ms(at_ms).ms() * 1_000_000;
            let line = |(word, severity, step, trace): (usize, usize, i64, Option<u8>)| {
                at_ns += step * 1_000_000;
                Line {
                    at_ns,
                    severity: Severity::ALL[severity],
                    stream: Some(Stream::Stdout),
                    message: format!("{} {number}", WORDS[word]),
                    trace: trace.map(|trace| format!("t{trace}")),
                }
            };
            let lines = lines.into_iter().map(line).collect();
            Written { source: owner(from, task, u32::try_from(number).unwrap()), lines }
        };
        chunks.into_iter().enumerate().map(written).collect()
    })
}

fn owner(from: usize, task: u32, attempt: u32) -> Source {
    let (workspace, kind, name, execution) = [
        ("wsp_a", KindName::Job, "nightly", "one"),
        ("wsp_a", KindName::Job, "nightly", "two"),
        ("wsp_a", KindName::Job, "daily", "one"),
        ("wsp_b", KindName::Job, "nightly", "one"),
        ("wsp_a", KindName::Agent, "nightly", "one"),
    ][from];
    Source {
        workspace: WorkspaceId::known(workspace),
        kind,
        name: name.into(),
        printer: Printer::Task {
            execution: ExecutionId::known(format!("exe_{from}")),
            execution_name: execution.into(),
            task,
            attempt,
        },
    }
}

fn any_question() -> impl Strategy<Value = Question> {
    let search = proptest::option::of(prop_oneof![
        Just("a"),
        Just("100%"),
        Just("_"),
        Just("ünd"),
        Just("\\"),
        Just("zz")
    ]);
    let severities = prop_oneof![
        Just(Severity::ALL.to_vec()),
        Just(vec![Severity::Error]),
        Just(vec![Severity::Unknown, Severity::Debug]),
    ];
    let ids = (
        proptest::option::of(prop_oneof![Just("one"), Just("two")]),
        proptest::option::of(0..3_u32),
    );
    let trace = proptest::option::of(Just("t1"));
    let window = (0..3000_i64, 0..4000_i64);
    (
        window,
        ids,
        search,
        trace,
        severities,
        prop_oneof![0..2_usize, 0..30_usize],
        prop_oneof![1..4_usize, 1..30_usize],
    )
        .prop_map(
            |((from, length), (execution, task), search, trace, severities, offset, limit)| {
                Question {
                    workspace: WorkspaceId::known("wsp_a"),
                    kind: KindName::Job,
                    name: "nightly".into(),
                    execution: execution.map(str::to_owned),
                    task,
                    from: NOW.plus_ms(from),
                    to: NOW.plus_ms(from + length),
                    search: search.map(str::to_owned),
                    trace: trace.map(str::to_owned),
                    severities,
                    offset,
                    limit,
                }
            },
        )
}

fn naive(written: &[Written], asked: &Question) -> Found {
    let mine = written.iter().filter(|chunk| {
        let of = &chunk.source;
        let Printer::Task { execution_name, task, .. } = &of.printer else { return false };
        (of.workspace == asked.workspace && of.kind == asked.kind && of.name == asked.name)
            && asked.execution.as_ref().is_none_or(|name| name == execution_name)
            && asked.task.is_none_or(|asked| asked == *task)
    });
    let mut lines: Vec<_> =
        mine.flat_map(|chunk| chunk.lines.clone())
            .filter(|line| {
                let ms = line.at_ns / 1_000_000;
                (asked.from.ms()..=asked.to.ms()).contains(&ms)
                    && asked.severities.contains(&line.severity)
                    && asked.trace.as_ref().is_none_or(|trace| line.trace.as_ref() == Some(trace))
                    && asked.search.as_ref().is_none_or(|text| {
                        line.message.to_lowercase().contains(&text.to_lowercase())
                    })
            })
            .collect();
    let total = lines.len() as u64;
    lines.sort_by_key(|line| std::cmp::Reverse(line.at_ns));
    let page = lines.into_iter().skip(asked.offset).take(asked.limit).collect();
    Found { lines: page, total }
}

async fn fill(store: &Store, written: &[Written]) {
    let written = written.to_vec();
    let work = move |tx: &mut store::Tx<'_>| {
        store::logs::trim(tx, i64::MAX, 1_000_000)?;
        written.iter().try_for_each(|chunk| append(tx, &chunk.source, &[stored(&chunk.lines)]))
    };
    store.write::<_, store::Error>(work).await.unwrap();
}

fn stored(lines: &[Line]) -> Chunk {
    Chunk {
        number: 1,
        first_ns: lines[0].at_ns,
        last_ns: lines[lines.len() - 1].at_ns,
        lines: u32::try_from(lines.len()).unwrap(),
        severities: lines.iter().fold(0, |bits, line| bits | line.severity.bit()),
        text: lines.iter().map(write).collect(),
        mark: Mark::default(),
    }
}

fn times(found: &Found) -> Vec<i64> {
    found.lines.iter().map(|line| line.at_ns).collect()
}

fn agree(postgres: bool, cases: u32) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (store, _folder) = runtime.block_on(open(postgres));
    let mut runner = TestRunner::new(Config::with_cases(cases));
    let questions = proptest::collection::vec((any_question(), 1..7_i64), 8);
    let run = runner.run(&(any_writing(), questions), |(written, questions)| {
        runtime.block_on(fill(&store, &written));
        for (question, step) in questions {
            let found = runtime.block_on(find_in_steps(&store, &question, step)).unwrap();
            let expected = naive(&written, &question);
            // Lines of the same time may come in any order. So the times are compared, and that
            // each line is one of the expected ones.
            prop_assert_eq!((times(&found), found.total), (times(&expected), expected.total));
            let whole = naive(&written, &Question { offset: 0, limit: usize::MAX, ..question });
            prop_assert!(found.lines.iter().all(|line| whole.lines.contains(line)));
        }
        Ok(())
    });
    run.unwrap();
}

#[test]
fn found_is_what_a_look_at_every_line_finds() {
    agree(false, 150);
}

#[test]
fn found_is_the_same_on_postgres() {
    agree(true, 12);
}
