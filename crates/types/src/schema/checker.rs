//! The first check of what callers send, against the same schema that is published.

use super::generator;
use crate::Problems;
use crate::parts::limits;
use crate::wire::bill;
use jsonschema::Validator;
use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use schemars::JsonSchema;
use serde_json::{Map, Value};

/// How much of a wrong body is looked at to say what is wrong with it, in values. A list of a million
/// wrong items would be a million errors.
const VALUES_MAX: usize = 10_000;
/// More members than this are not those of a type but the entries of a map.
const MEMBERS_MAX: usize = 100;
/// Most problems that are reported at once.
const PROBLEMS_MAX: usize = 100;

/// Checks bodies of one type. Building a checker costs milliseconds, so make it once at start.
#[derive(Debug)]
pub struct Checker(Validator);

impl Checker {
    pub fn of<T: JsonSchema>() -> Self {
        let mut generator = generator();
        let root = generator.subschema_for::<T>().to_value();
        Self::new(root, generator.take_definitions(true))
    }

    /// Not generic, because the library of schemas would be compiled again wherever this is.
    #[expect(
        clippy::expect_used,
        reason = "a schema that we derive is valid or no request could be served"
    )]
    fn new(mut schema: Value, definitions: Map<String, Value>) -> Self {
        let mut definitions = Value::Object(definitions);
        relax(&mut definitions);
        relax(&mut schema);
        if let Value::Object(members) = &mut schema {
            members.insert(
                "components".into(),
                Value::Object(Map::from_iter([("schemas".into(), definitions)])),
            );
        }
        // One parser decides what a valid time is.
        let is_time = |text: &str| text.parse::<crate::Timestamp>().is_ok();
        let options =
            jsonschema::options().should_validate_formats(true).with_format("date-time", is_time);
        let validator = options.build(&schema);
        Self(validator.expect("derived schema compiles"))
    }

    pub fn check(&self, body: &Value) -> Result<(), Problems> {
        // This looks at everything and remembers nothing.
        if self.0.is_valid(body) {
            return Ok(());
        }
        let mut excerpt = Excerpt { left: VALUES_MAX, cut: None };
        let (part, mut problems) = (excerpt.of(body, ""), Problems::default());
        for error in self.0.iter_errors(&part) {
            report(&error, &mut problems);
        }
        problems.truncate(PROBLEMS_MAX);
        if problems.is_empty() {
            let (path, has) = excerpt.cut.unwrap_or_default();
            let why = format!("has too many items, or is wrong somewhere behind the first {has}");
            problems.add(shown(path), why);
        }
        Err(problems)
    }
}

/// A part of a body that has nothing wrong unless the body has: no list is emptied, and no type
/// loses members.
struct Excerpt {
    /// How many more values it takes.
    left: usize,
    /// Path of the first list or map that was cut, and how much of it is left.
    cut: Option<(String, usize)>,
}

impl Excerpt {
    fn of(&mut self, value: &Value, path: &str) -> Value {
        self.left = self.left.saturating_sub(1);
        match value {
            Value::Array(items) => {
                let mut kept = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    if self.cuts(path, index) {
                        break;
                    }
                    kept.push(self.of(item, &format!("{path}[{index}]")));
                }
                Value::Array(kept)
            }
            Value::Object(members) => {
                let is_map = members.len() > MEMBERS_MAX;
                let mut kept = Map::new();
                for (index, (name, member)) in members.iter().enumerate() {
                    if is_map && self.cuts(path, index) {
                        break;
                    }
                    let gap = if path.is_empty() { "" } else { "." };
                    let inner = self.of(member, &format!("{path}{gap}{name}"));
                    kept.insert(name.clone(), inner);
                }
                Value::Object(kept)
            }
            other => other.clone(),
        }
    }

    /// Returns whether a list that has this many items already gets no more.
    fn cuts(&mut self, path: &str, has: usize) -> bool {
        let cuts = self.left == 0 && has > 0;
        if cuts && self.cut.is_none() {
            self.cut = Some((path.to_owned(), has));
        }
        cuts
    }
}

/// Makes read-only members accept any value: they are ignored when sent.
fn relax(schema: &mut Value) {
    match schema {
        Value::Object(members) if members.get("readOnly") == Some(&Value::Bool(true)) => {
            *schema = Value::Bool(true)
        }
        Value::Object(members) => members.values_mut().for_each(relax),
        Value::Array(items) => items.iter_mut().for_each(relax),
        _ => {}
    }
    if let Value::Object(members) = schema {
        let loose: Vec<String> = match members.get("properties") {
            Some(Value::Object(properties)) => properties
                .iter()
                .filter(|(_, rule)| **rule == Value::Bool(true))
                .map(|(name, _)| name.clone())
                .collect(),
            _ => Vec::new(),
        };
        if let Some(Value::Array(required)) = members.get_mut("required") {
            required.retain(|name| {
                name.as_str().is_none_or(|name| !loose.iter().any(|member| member == name))
            });
        }
    }
}

/// Records the error. A wrong value in a nullable member fails as a choice; the actual problem is
/// in the branch that is not "or null".
fn report(error: &ValidationError<'_>, problems: &mut Problems) {
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
        error.kind()
    {
        let telling: Vec<_> =
            context.iter().filter(|branch| !branch.iter().all(is_null_branch)).collect();
        if let [branch] = telling[..] {
            return branch.iter().for_each(|error| report(error, problems));
        }
    }
    problems.add(field(error), rule(error));
}

/// Returns the path of the wrong member as a caller writes it: `spec.runtime.envs[0].name`.
fn field(error: &ValidationError<'_>) -> String {
    let mut path = String::new();
    for step in error.instance_path().as_str().split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match step.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) if path.is_empty() => path.push_str(&step),
            Err(_) => path.push_str(&format!(".{step}")),
        }
    }
    if let ValidationErrorKind::Required { property } = error.kind() {
        let gap = if path.is_empty() { "" } else { "." };
        path.push_str(&format!("{gap}{}", property.as_str().unwrap_or_default()));
    }
    shown(path)
}

fn shown(path: String) -> String {
    let path: String = path.chars().take(200).collect();
    if path.is_empty() { "body".into() } else { path }
}

/// Describes the broken rule in words that continue "`field` …". Never repeats the value, which may
/// be a secret.
fn rule(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind as Rule;
    match error.kind() {
        Rule::Required { .. } => "is required".into(),
        Rule::Minimum { limit } => format!("must be at least {limit}"),
        Rule::Maximum { limit } => format!("must be at most {limit}"),
        Rule::MinLength { limit } => format!("must have at least {limit} characters"),
        Rule::MaxLength { limit } => format!("must have at most {limit} characters"),
        Rule::MinItems { limit } => format!("must have at least {limit} items"),
        Rule::MaxItems { limit } => format!("must have at most {limit} items"),
        Rule::MaxProperties { limit } => format!("must have at most {limit} members"),
        Rule::PropertyNames { error } => format!("has a member whose name {}", rule(error)),
        Rule::Pattern { pattern } => match words(pattern) {
            Some(words) => words.into(),
            None => format!("must match {pattern}"),
        },
        Rule::Enum { options } => format!("must be one of {}", listed(options)),
        Rule::Constant { expected_value } => format!("must be {expected_value}"),
        Rule::Format { format } => format!("must be a {format}"),
        Rule::Type { kind: TypeKind::Single(kind) } => format!("must be of type {kind}"),
        Rule::Type { kind: TypeKind::Multiple(kinds) } => {
            let kinds: Vec<String> = kinds.iter().map(|kind| kind.to_string()).collect();
            format!("must be of type {}", kinds.join(" or "))
        }
        Rule::AnyOf { .. } | Rule::OneOfNotValid { .. } => {
            "matches none of the forms that are allowed".into()
        }
        _ => "does not have the form that the schema asks for".into(),
    }
}

/// Says in words what a pattern asks for, if it is one of ours.
fn words(pattern: &str) -> Option<&'static str> {
    Some(match pattern {
        limits::ONE_LINE => "must be one line without control characters",
        limits::PATH_SEGMENT => {
            "must have only letters, digits, `.`, `_` and `-`, and not begin with `.`"
        }
        limits::FREE_SEGMENT => {
            "must have no control characters, no `/` and no `\\`, and not begin with `.` or a space"
        }
        limits::DNS_LABEL => {
            "must have only lower-case letters, digits and `-`, and begin and end with a letter \
             or digit"
        }
        limits::IMAGE_NAME => {
            "must have only lower-case letters, digits, `.`, `_`, `/` and `-`, and begin and end \
             with a letter or digit"
        }
        limits::EXTERNAL_ID => "must have only letters, digits and `-`",
        bill::PRICE => {
            "must be a decimal such as `0.0000115`: up to 6 digits, and 12 after a point"
        }
        bill::AMOUNT => {
            "must be a decimal such as `500` or `0.5`: up to 9 digits, and 4 after a point"
        }
        _ => return None,
    })
}

fn is_null_branch(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Type { kind: TypeKind::Single(kind) } if kind.to_string() == "null")
}

fn listed(options: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<String> =
        options.iter().filter(|option| !option.is_null()).map(ToString::to_string).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Body {
        name: String,
        list: Option<Vec<u32>>,
    }

    fn wrong(body: &Value) -> Vec<String> {
        let problems = Checker::of::<Body>().check(body).unwrap_err();
        problems.iter().map(|problem| problem.field.clone()).collect()
    }

    #[test]
    fn amounts_are_asked_for_in_words() {
        let prices = json!({"versions": [{"prices": {"volume_storage_gbs": "1.2345678901234"}}]});
        let price = Checker::of::<bill::AccountPrices>().check(&prices).unwrap_err();
        let amount =
            Checker::of::<bill::BudgetRequest>().check(&json!({"amount": "1e3"})).unwrap_err();
        for problems in [price, amount] {
            let said = problems.iter().map(|problem| problem.message.clone()).collect::<String>();
            assert!(said.starts_with("must be a decimal such as"), "{said}");
        }
    }

    #[test]
    fn a_long_list_of_wrong_items_is_few_problems() {
        let fields = wrong(&json!({"name": "x", "list": vec!["y"; 200_000]}));
        assert_eq!((fields.len(), fields[0].as_str()), (PROBLEMS_MAX, "list[0]"));
    }

    #[test]
    fn what_is_wrong_behind_much_that_is_right_is_wrong_too() {
        let right = vec![json!(1); 2 * VALUES_MAX];
        let all = |last: Value| [right.clone(), vec![last]].concat();
        assert!(Checker::of::<Body>().check(&json!({"name": "x", "list": all(json!(2))})).is_ok());
        assert_eq!(wrong(&json!({"name": "x", "list": all(json!("y"))})), ["list"]);
        // A member that comes after the list is not taken for missing.
        assert_eq!(wrong(&json!({"list": all(json!("y")), "name": 3})), ["name"]);
        assert_eq!(wrong(&json!({"list": right})), ["name"]);
    }
}
