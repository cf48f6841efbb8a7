//! Arguments against the schema a tool publishes, and what to tell the model when they do not fit.
//!
//! Messages name arguments and say what is expected. They never quote a value: it may be a secret.

use std::sync::OnceLock;

use jsonschema::{
    JsonType, PatternOptions, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use moongate_core::{CallError, Raw, builtin::ToolError};
use serde_json::{Value, json};

mod shape;

use shape::Shape;

/// A wrong call rarely has more than a few problems; a hostile one shall not make us write a book.
const MAX_PROBLEMS: usize = 8;
/// Arguments of this many bytes are told all their problems, larger ones the first: every problem costs hundreds of
/// bytes, and one list holds them all before the first is told.
const LISTED_WITHIN: usize = 4 * 1024;
/// Argument names are the caller's text, so they are cut.
const MAX_NAME: usize = 64;
/// Bounds what a pattern may compile to.
const PATTERN_SIZE: usize = 1 << 20;

/// A tool's input schema, compiled when it is first needed: most tools are never called.
pub(crate) struct Schema {
    source: Value,
    compiled: OnceLock<Result<Compiled, String>>,
}

struct Compiled {
    /// Sees that most right arguments are right. Whatever it does not see is the validator's to judge.
    shape: Option<Shape>,
    validator: Validator,
}

impl Schema {
    pub(crate) fn new(source: Value) -> Self {
        Self { source, compiled: OnceLock::new() }
    }

    /// Whether `arguments` fit.
    pub(crate) fn check(&self, arguments: &Raw) -> Result<(), ToolError> {
        let Compiled { shape, validator } = self.compiled()?;
        if shape.as_ref().is_some_and(|shape| shape.surely_fits(arguments)) {
            return Ok(());
        }
        let value: Value = arguments
            .parse()
            .map_err(|_| ToolError::invalid("Error: the arguments are not readable JSON"))?;
        if validator.is_valid(&value) {
            return Ok(());
        }
        let problems = if arguments.as_str().len() <= LISTED_WITHIN {
            self.tell(validator.iter_errors(&value))
        } else {
            self.tell(validator.validate(&value).err())
        };
        let message = format!("Error: {}", problems.join("; "));
        Err(ToolError::invalid(message).with_details(json!({"status": "failed", "problems": problems})))
    }

    fn compiled(&self) -> Result<&Compiled, CallError> {
        let compiled = self.compiled.get_or_init(|| {
            let patterns = PatternOptions::regex().size_limit(PATTERN_SIZE).dfa_size_limit(PATTERN_SIZE);
            let built = jsonschema::options().offline().with_pattern_options(patterns).build(&self.source);
            let compiled = built.map(|validator| Compiled { shape: Shape::of(&self.source), validator });
            compiled.map_err(|error| error.to_string())
        });
        compiled
            .as_ref()
            .map_err(|error| CallError::internal("the tool's schema cannot be used", error.clone()))
    }

    fn tell<'v>(&self, errors: impl IntoIterator<Item = ValidationError<'v>>) -> Vec<String> {
        let mut problems: Vec<String> = Vec::new();
        for problem in errors.into_iter().map(|error| self.describe(&error)) {
            if problems.len() == MAX_PROBLEMS {
                problems.push("and more".to_owned());
                break;
            }
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        problems
    }

    fn describe(&self, error: &ValidationError<'_>) -> String {
        let path = dotted(error.instance_path().as_str());
        let subject = if path.is_empty() { "the arguments" } else { path.as_str() };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                format!(
                    "{} is required",
                    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
                )
            }
            // An empty text is as good as none, and reads better said so.
            ValidationErrorKind::MinLength { limit: 1 } => format!("{subject} is required"),
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => self.unknown(&path, unexpected),
            kind => format!("{subject} {}", expectation(kind)),
        }
    }

    fn unknown(&self, path: &str, unexpected: &[String]) -> String {
        let names: Vec<&str> = unexpected.iter().take(MAX_PROBLEMS).map(|name| short(name)).collect();
        let names = names.join(", ");
        if !path.is_empty() {
            return format!("{path} has unknown members: {names}");
        }
        let known = self.source.get("properties").and_then(Value::as_object);
        let known: Vec<&str> = known.into_iter().flat_map(|known| known.keys()).map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("unknown arguments: {names} (known: {known})")
    }
}

/// What the schema wants, as the end of a sentence. Everything quoted here comes from the schema.
fn expectation(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Type { kind: TypeKind::Single(expected) } => format!("must be {}", noun(*expected)),
        Kind::Type { kind: TypeKind::Multiple(expected) } => {
            let nouns: Vec<&str> = expected.iter().map(noun).collect();
            format!("must be {}", nouns.join(" or "))
        }
        Kind::Enum { options } => match options.as_array() {
            Some(options) => format!("must be one of {}", list(options)),
            None => "must be one of the listed values".to_owned(),
        },
        Kind::Constant { expected_value } => format!("must be {expected_value}"),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit: 1 } => "must not be empty".to_owned(),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::MinProperties { limit } => format!("must have at least {limit} members"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} members"),
        Kind::UniqueItems => "must not repeat an item".to_owned(),
        Kind::Pattern { pattern } => format!("must match {pattern}"),
        Kind::Format { format } => format!("must be a valid {format}"),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "has none of the allowed shapes".to_owned(),
        other => format!("does not fit the schema's {}", other.keyword()),
    }
}

fn noun(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "an array",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

fn list(options: &[Value]) -> String {
    let options: Vec<String> = options
        .iter()
        .map(|option| option.as_str().map_or_else(|| option.to_string(), str::to_owned))
        .collect();
    options.join(", ")
}

/// `/data/0/value` as `data[0].value`.
fn dotted(pointer: &str) -> String {
    let mut out = String::new();
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() {
            out.push('[');
            out.push_str(short(&name));
            out.push(']');
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(short(&name));
        }
    }
    out
}

fn short(name: &str) -> &str {
    name.char_indices().nth(MAX_NAME).and_then(|(end, _)| name.get(..end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(schema: Value, arguments: &Value) -> String {
        match Schema::new(schema).check(&Raw::of(arguments)) {
            Ok(()) => "fits".to_owned(),
            Err(ToolError::Failed(failure)) => {
                assert_eq!(failure.code, -32602);
                failure.message
            }
            Err(ToolError::Call(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn problems_are_told_by_name_and_expectation() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["goal"], "properties": {
            "goal": {"type": "string", "minLength": 1},
            "id": {"type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+$"},
            "level": {"enum": ["low", "high"]},
            "data": {"type": "array", "minItems": 1, "items": {
                "type": "object", "required": ["value"], "properties": {"value": {"type": "number"}}
            }},
        }});
        for (arguments, expected) in [
            (json!({"goal": "x", "id": "7", "level": "low", "data": [{"value": 1.5}]}), "fits"),
            (json!({}), "Error: goal is required"),
            (json!({"goal": ""}), "Error: goal is required"),
            (json!({"goal": 7}), "Error: goal must be a string"),
            (json!({"goal": "x", "id": true}), "Error: id must be an integer or a string"),
            (json!({"goal": "x", "id": 0}), "Error: id must be at least 1"),
            (json!({"goal": "x", "id": "a"}), "Error: id must match ^[0-9]+$"),
            (json!({"goal": "x", "level": "no"}), "Error: level must be one of low, high"),
            (json!({"goal": "x", "data": []}), "Error: data must not be empty"),
            (json!({"goal": "x", "data": [{}]}), "Error: data[0].value is required"),
            (
                json!({"goal": "x", "data": [{"value": 1}, {"value": "1"}]}),
                "Error: data[1].value must be a number",
            ),
            (
                json!({"goal": "x", "gaol": 1}),
                "Error: unknown arguments: gaol (known: data, goal, id, level)",
            ),
            (json!([]), "Error: the arguments must be an object"),
        ] {
            assert_eq!(problem(schema.clone(), &arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn large_arguments_are_told_their_first_problem_only() {
        let schema = json!({"properties": {"data": {"type": "array", "items": {"type": "object"}}}});
        let told = |items: usize| problem(schema.clone(), &json!({"data": vec![1; items]}));
        let few = "Error: data[0] must be an object; data[1] must be an object";
        assert_eq!(told(2), few);
        assert!(told(MAX_PROBLEMS + 1).starts_with(few) && told(MAX_PROBLEMS + 1).ends_with("; and more"));
        assert_eq!(told(LISTED_WITHIN), "Error: data[0] must be an object");
    }

    #[test]
    fn no_value_is_quoted_and_names_are_cut() {
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "a": {"enum": ["x"]}, "b": {"type": "object"}, "c": {"pattern": "^x$"}, "d": {"maxLength": 2},
        }});
        let secret = "s3cret-value";
        let told =
            problem(schema, &json!({"a": secret, "b": secret, "c": secret, "d": secret, "n".repeat(500): 1}));
        assert!(!told.contains(secret), "{told}");
        assert!(told.len() < 400, "{told}");
    }

    #[test]
    fn a_schema_that_looks_elsewhere_is_not_followed() {
        let schema = Schema::new(json!({"$ref": "https://example.com/schema.json"}));
        assert!(matches!(schema.check(&Raw::empty_object()), Err(ToolError::Call(_))));
    }
}
