//! A whole Dockerfile: its stages, and which of them the image needs.

use super::Mistake;
use super::budget::Budget;
use super::instruction::{self, From, Instruction, Step};
use super::lines::{self, Statement};
use super::scope::{self, Arguments, platform_argument};
use super::words;
use crate::manifest::Platform;
use std::collections::BTreeMap;

const STAGES_MAX: usize = 200;

/// The contents of a Dockerfile, before any of what it names is known to exist.
#[derive(Debug, Clone)]
pub struct Dockerfile {
    escape: char,
    /// ARG instructions before the first stage.
    globals: Vec<Step>,
    stages: Vec<(usize, From, Vec<Step>)>,
}

/// The stages that the image needs, in build order. The last one is the image.
#[derive(Debug, Clone)]
pub struct Plan {
    pub stages: Vec<Stage>,
    /// Names of all stages in the Dockerfile, for names that only appear during the build.
    names: Vec<Option<String>>,
    pub(super) globals: BTreeMap<String, String>,
    pub(super) escape: char,
}

#[derive(Debug, Clone)]
pub struct Stage {
    /// Index among all stages of the Dockerfile.
    pub index: usize,
    pub name: Option<String>,
    pub from: Statement,
    pub base: Base,
    pub steps: Vec<Step>,
}

/// What a stage starts from, or what files are copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    Scratch,
    /// Another stage, by its index among all stages.
    Stage(usize),
    /// An image, by its name.
    Image(String),
}

impl Dockerfile {
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let lines = lines::read(text)?;
        let (mut globals, mut stages) = (Vec::new(), Vec::<(usize, From, Vec<Step>)>::new());
        let escape = lines.escape;
        for statement in lines.statements {
            let line = statement.line;
            let step = instruction::read(statement, escape)?;
            match (&step.instruction, stages.last_mut()) {
                (Instruction::From(from), _) => {
                    if stages.len() == STAGES_MAX {
                        return Err(Mistake::new(line, format!("more than {STAGES_MAX} stages")));
                    }
                    stages.push((line, from.clone(), vec![step]));
                }
                (_, Some((_, _, steps))) => steps.push(step),
                (Instruction::Arg(_), None) => globals.push(step),
                (_, None) => {
                    let why = "the first instruction is FROM; only ARG may stand before it";
                    return Err(Mistake::new(line, why));
                }
            }
        }
        match stages.is_empty() {
            true => Err(Mistake::new(1, "there is no FROM in it")),
            false => Ok(Self { escape, globals, stages }),
        }
    }

    /// Finds the stages that the last one needs, and expands the names of images with the given
    /// arguments.
    pub fn plan(&self, given: &BTreeMap<String, String>) -> Result<Plan, Mistake> {
        let globals = self.globals(given)?;
        let names: Vec<Option<String>> =
            self.stages.iter().map(|(_, from, _)| from.name.clone()).collect();
        let mut plan = Plan { stages: Vec::new(), names, globals, escape: self.escape };
        let mut needed = vec![self.stages.len() - 1];
        let mut planned: BTreeMap<usize, Stage> = BTreeMap::new();
        while let Some(index) = needed.pop() {
            if planned.contains_key(&index) {
                continue;
            }
            let (stage, others) = self.stage(index, &plan)?;
            planned.insert(index, stage);
            needed.extend(others);
        }
        plan.stages = planned.into_values().collect();
        Ok(plan)
    }

    fn globals(
        &self,
        given: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Mistake> {
        let mut globals = BTreeMap::new();
        // What one argument may say of the others: platform arguments need no ARG here.
        let mut all = scope::platform_arguments();
        for step in &self.globals {
            let Instruction::Arg(arguments) = &step.instruction else { continue };
            let wrong = |why| Mistake::new(step.statement.line, why);
            let budget = Budget::default();
            for (name, default) in arguments {
                let known = Arguments { all: &all };
                let value = match (given.get(name), default) {
                    (Some(value), _) => Some(value.clone()),
                    (None, Some(text)) => {
                        Some(words::value(text, self.escape, &known, &budget).map_err(wrong)?)
                    }
                    (None, None) => platform_argument(name),
                };
                if let Some(value) = value {
                    all.insert(name.clone(), value.clone());
                    globals.insert(name.clone(), value);
                }
            }
            scope::check_arguments(&globals).map_err(wrong)?;
        }
        Ok(globals)
    }

    /// Reads a stage, and finds the other stages that it needs.
    fn stage(&self, index: usize, plan: &Plan) -> Result<(Stage, Vec<usize>), Mistake> {
        let (line, from, steps) = &self.stages[index];
        let wrong = |why: String| Mistake::new(*line, why);
        let mut known = scope::platform_arguments();
        known.extend(plan.globals.clone());
        let (known, budget) = (Arguments { all: &known }, Budget::default());
        let image = words::value(&from.image, self.escape, &known, &budget).map_err(wrong)?;
        if image.is_empty() {
            return Err(wrong(format!("`{}` names no image: an argument is not set", from.image)));
        }
        if let Some(platform) = &from.platform {
            let platform = words::value(platform, self.escape, &known, &budget).map_err(wrong)?;
            check_platform(&platform).map_err(wrong)?;
        }
        // Stage names ignore case, image names do not.
        let by_name = plan.named(&image, index).filter(|_| image.parse::<usize>().is_err());
        let base = match by_name {
            Some(stage) => Base::Stage(stage),
            None if image == "scratch" => Base::Scratch,
            None => Base::Image(image),
        };
        let mut others: Vec<usize> = by_name.into_iter().collect();
        for step in steps {
            for other in sources(&step.instruction) {
                let found = plan
                    .source(&other, index)
                    .map_err(|why| Mistake::new(step.statement.line, why))?;
                if let Base::Stage(stage) = found {
                    others.push(stage);
                }
            }
        }
        let (first, rest) = steps.split_first().ok_or_else(|| wrong("a stage is empty".into()))?;
        let stage = Stage {
            index,
            name: from.name.clone(),
            from: first.statement.clone(),
            base,
            steps: rest.to_vec(),
        };
        Ok((stage, others))
    }
}

impl Plan {
    /// Reads an ONBUILD instruction that came with a base image.
    pub fn trigger(&self, line: usize, text: &str) -> Result<Step, Mistake> {
        let lines = lines::read(text).map_err(|mistake| Mistake::new(line, mistake.why))?;
        let mut statements = lines.statements.into_iter();
        match (statements.next(), statements.next()) {
            (Some(statement), None) => {
                instruction::read(Statement { line, ..statement }, lines.escape)
            }
            _ => Err(Mistake::new(line, "what the image has for ONBUILD is not one instruction")),
        }
    }

    /// Resolves `--from` in a stage.
    pub fn source(&self, name: &str, stage: usize) -> Result<Base, String> {
        if let Some(found) = self.named(name, stage) {
            return Ok(Base::Stage(found));
        }
        match name {
            "" => Err("`--from` names nothing".to_owned()),
            "scratch" => Err("there is nothing to copy in `scratch`".to_owned()),
            name if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(format!("there is no stage {name} before this one"))
            }
            name if self.is_later(name, stage) => {
                Err(format!("the stage `{name}` is not before this one"))
            }
            name => Ok(Base::Image(name.to_owned())),
        }
    }

    /// Finds the latest stage of this name, or else of this number, before another one.
    fn named(&self, name: &str, before: usize) -> Option<usize> {
        let lower = name.to_ascii_lowercase();
        let earlier = self.names.get(..before)?;
        let by_name = earlier.iter().rposition(|known| known.as_deref() == Some(&lower));
        by_name.or_else(|| name.parse().ok().filter(|number| *number < before))
    }

    fn is_later(&self, name: &str, stage: usize) -> bool {
        let lower = name.to_ascii_lowercase();
        let later = self.names.get(stage..).unwrap_or_default();
        later.iter().any(|known| known.as_deref() == Some(&lower))
    }
}

/// Returns the names in `--from`, and in the `from=` of mounts.
fn sources(instruction: &Instruction) -> Vec<String> {
    match instruction {
        Instruction::Copy(transfer) => transfer.from.iter().cloned().collect(),
        Instruction::Run(run) => {
            let option = |mount: &String| {
                mount
                    .split(',')
                    .find_map(|part| part.trim().strip_prefix("from=").map(str::to_owned))
            };
            run.mounts.iter().filter_map(option).collect()
        }
        _ => Vec::new(),
    }
}

fn check_platform(wanted: &str) -> Result<(), String> {
    let here = Platform::here();
    let mut parts = wanted.split('/');
    let (os, architecture) = (parts.next().unwrap_or_default(), parts.next());
    let architecture = match architecture {
        Some("x86_64") => Some("amd64"),
        Some("aarch64") => Some("arm64"),
        other => other,
    };
    let same = match architecture {
        Some(architecture) => os == here.os && architecture == here.architecture,
        None => os == here.os || os == here.architecture,
    };
    if same {
        Ok(())
    } else {
        Err(format!("this machine builds for {here}, and not for `{wanted}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(text: &str, given: &[(&str, &str)]) -> Result<Vec<(usize, Base)>, Mistake> {
        let given = given.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let plan = Dockerfile::parse(text)?.plan(&given)?;
        Ok(plan.stages.into_iter().map(|stage| (stage.index, stage.base)).collect())
    }

    fn image(name: &str) -> Base {
        Base::Image(name.to_owned())
    }

    #[test]
    fn only_the_stages_that_the_last_one_needs_are_built() {
        let text = "FROM a AS one\nFROM b AS two\nFROM ONE as three\nFROM scratch\nCOPY --from=three x /\n\
                    RUN --mount=type=bind,from=0,target=/x y";
        let found = plan(text, &[]).unwrap();
        assert_eq!(found, [(0, image("a")), (2, Base::Stage(0)), (3, Base::Scratch)]);
    }

    #[test]
    fn names_of_images_have_arguments() {
        let text =
            "ARG TAG=1\nARG NAME=x:${TAG}\nFROM --platform=$BUILDPLATFORM ${NAME:-y}-$TARGETARCH";
        let wanted = format!("x:2-{}", Platform::here().architecture);
        assert_eq!(plan(text, &[("TAG", "2"), ("NAMES", "no")]).unwrap(), [(0, image(&wanted))]);
        let text = "ARG NAME=x-${TARGETARCH}\nFROM $NAME";
        let wanted = format!("x-{}", Platform::here().architecture);
        assert_eq!(plan(text, &[]).unwrap(), [(0, image(&wanted))]);
        let text = "ARG TARGETARCH=own\nARG NAME=x-$TARGETARCH\nFROM $NAME";
        assert_eq!(plan(text, &[]).unwrap(), [(0, image("x-own"))]);
        assert_eq!(plan("ARG X\nFROM $X", &[]).unwrap_err().line, 2);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        // Each argument is short enough, but all of them together are not.
        let large = "x".repeat(1 << 16);
        let more: String = (0..40).map(|number| format!("ARG A{number}=$A\n")).collect();
        let doubled = format!("ARG A={large}\n{more}FROM x");
        for (text, line) in [
            ("", 1),
            ("RUN x", 1),
            ("ARG a\nENV b=c\nFROM x", 2),
            ("FROM x\nBAD y", 2),
            ("FROM x\nCOPY --from=later a b\nFROM y as later", 0),
            ("FROM x\nCOPY --from=3 a b", 2),
            ("FROM x as a\nCOPY --from=a b c", 2),
            ("FROM --platform=windows/amd64 x", 1),
            (&doubled, 16),
        ] {
            let found = plan(text, &[]);
            match line {
                0 => assert!(found.is_ok(), "{text}: the stage is not needed"),
                line => assert_eq!(found.unwrap_err().line, line, "{text}"),
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((FROM|ARG|COPY|RUN|ENV) [a-z$:{}=. -]{0,12}( as [a-z]{1,3})?\n){0,8}") {
            if let Ok(file) = Dockerfile::parse(&text) {
                let _ = file.plan(&BTreeMap::new());
            }
        }
    }
}
