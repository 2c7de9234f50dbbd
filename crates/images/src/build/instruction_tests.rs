use super::*;
use proptest::prelude::*;

fn one(text: &str) -> Result<Instruction, String> {
    let lines = super::super::lines::read(text).map_err(|error| error.to_string())?;
    let statement = lines.statements.into_iter().next().ok_or("nothing")?;
    read(statement, lines.escape).map(|step| step.instruction).map_err(|error| error.why)
}

#[test]
fn commands_have_two_forms() {
    let run = |text| match one(text) {
        Ok(Instruction::Run(run)) => run,
        other => panic!("{other:?}"),
    };
    assert_eq!(run("RUN [\"a\", \"b c\"]").command, Command::Exec(vec!["a".into(), "b c".into()]));
    assert_eq!(run("run [ -f x ] && y").command, Command::Shell("[ -f x ] && y".into()));
    let mounted =
        run("RUN --mount=type=cache,target=/c --network=none --mount=type=tmpfs,target=/t x --y");
    assert_eq!(mounted.mounts, ["type=cache,target=/c", "type=tmpfs,target=/t"]);
    assert!(!mounted.has_network);
    assert_eq!(mounted.command, Command::Shell("x --y".into()));
    for bad in ["RUN", "RUN --network=host x", "RUN --security=insecure x", "RUN --other x"] {
        assert!(one(bad).is_err(), "{bad}");
    }
}

#[test]
fn copies_take_options_lists_and_texts() {
    let copy = |text| match one(text) {
        Ok(Instruction::Copy(copy)) => copy,
        other => panic!("{other:?}"),
    };
    let found = copy("COPY --from=x --chown=a:b --chmod=755 --link a \"b c\" /d/");
    assert_eq!(found.from.as_deref(), Some("x"));
    assert_eq!(found.sources, [Source::Path("a".into()), Source::Path("\"b c\"".into())]);
    assert_eq!(found.target, "/d/");
    assert_eq!(copy("COPY [\"a b\", \"c\"]").sources, [Source::Path("a b".into())]);
    let found = copy("COPY <<a <<b /x/\n1\na\n2\nb");
    let Source::Text(second) = &found.sources[1] else { panic!("{found:?}") };
    assert_eq!(second.content, "2\n");
    let unpack = |text| match one(text) {
        Ok(Instruction::Add(add)) => add.unpack,
        other => panic!("{other:?}"),
    };
    assert_eq!(unpack("ADD --unpack=false a b"), Some(false));
    assert_eq!(unpack("ADD --unpack a b"), Some(true));
    assert_eq!(unpack("ADD a b"), None);
    assert!(one("ADD --unpack=x a b").is_err());
    assert!(one("COPY a").is_err());
    assert!(one("COPY --checksum=x a b").is_err());
}

#[test]
fn an_instruction_for_later_keeps_its_texts() {
    let text = "COPY <<a <<-'b' /x/\n1\n a\na\n2\nb";
    let later = match one(&format!("ONBUILD {}", text.replace("\n2", "\n\t2"))) {
        Ok(Instruction::OnBuild(later)) => later,
        other => panic!("{other:?}"),
    };
    assert_eq!(later, text);
    assert_eq!(one(&later), one(text));
    assert_eq!(one("ONBUILD RUN true"), Ok(Instruction::OnBuild("RUN true".into())));
}

#[test]
fn names_and_values_have_an_old_form() {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(one("ENV a b  c"), Ok(Instruction::Env(vec![pair("a", "b  c")])));
    let found = one("ENV a=b c=\"d e\" f=");
    let pairs = vec![pair("a", "b"), pair("c", "\"d e\""), pair("f", "")];
    assert_eq!(found, Ok(Instruction::Env(pairs)));
    for bad in ["ENV a", "ENV a=b c", "LABEL =x", "ENV"] {
        assert!(one(bad).is_err(), "{bad}");
    }
}

#[test]
fn times_are_written_as_in_go() {
    for (text, wanted) in [("1h30m", 5_400_000_000_000), ("1.5s", 1_500_000_000), ("0", 0)] {
        assert_eq!(nanoseconds("x", text), Ok(wanted));
    }
    for bad in ["", "1", "s", "1x", "1..2s", "-1s"] {
        assert!(nanoseconds("x", bad).is_err(), "{bad}");
    }
}

#[test]
fn stages_have_names() {
    let wanted = From { image: "a:1".into(), platform: Some("x".into()), name: Some("b".into()) };
    assert_eq!(one("FROM --platform=x a:1 As B"), Ok(Instruction::From(wanted)));
    for bad in ["FROM", "FROM a b", "FROM a as 1", "FROM a as b c"] {
        assert!(one(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(
        keyword in "(FROM|RUN|COPY|ADD|ENV|LABEL|ARG|VOLUME|CMD|SHELL|HEALTHCHECK|ONBUILD|X)",
        rest in "( |--[a-z]{0,8}=?|<<E|\\[|\\]|\"|'|,|=|\\\\|[a-z0-9]|\n|é){0,30}",
    ) {
        let _ = one(&format!("{keyword} {rest}"));
    }
}
