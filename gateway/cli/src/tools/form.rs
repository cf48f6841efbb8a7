//! A form that a tool asks to be filled in, on a terminal: one line for each field.
//!
//! In: the parameters of an `elicitation/create`. Out: its result. An empty line takes the default or leaves an optional
//! field out; the end of the input declines.

use std::io::Write;

use moongate_wire::Raw;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, Lines};

/// A person at a terminal.
pub(super) struct Form<R, W> {
    lines: Lines<R>,
    screen: W,
}

impl<R: AsyncBufRead + Unpin, W: Write> Form<R, W> {
    pub(super) fn new(keyboard: R, screen: W) -> Self {
        Self { lines: keyboard.lines(), screen }
    }

    /// The result of an elicitation.
    ///
    /// # Cancel safety
    /// Cancel safe: what was typed so far is forgotten.
    pub(super) async fn ask(&mut self, params: &Raw) -> Value {
        if params.member("mode").is_some_and(|mode| !mode.is_text("form")) {
            return json!({"action": "decline"});
        }
        let message = params.member("message").and_then(|message| message.parse::<String>().ok());
        self.say(&format!("{}\n", safe(message.as_deref().unwrap_or("The tool asks:"))));
        let schema = params.member("requestedSchema").unwrap_or_else(Raw::empty_object);
        let required = schema.member("required").and_then(|names| names.parse::<Vec<String>>().ok());
        let required = required.unwrap_or_default();
        let mut content = Map::new();
        // Not parsed as a whole, because fields are asked in the order in which they were written.
        for (name, property) in schema.member("properties").map(|all| all.members()).unwrap_or_default() {
            let property = property.parse().unwrap_or_default();
            let field = Field { name: &name, property: &property, required: required.contains(&name) };
            match self.fill(&field).await {
                Some(Some(value)) => {
                    content.insert(name, value);
                }
                Some(None) => {}
                None => {
                    self.end_line();
                    return json!({"action": "decline"});
                }
            }
        }
        json!({"action": "accept", "content": content})
    }

    /// Ends a line that was left in the middle.
    pub(super) fn end_line(&mut self) {
        self.say("\n");
    }

    /// The value of a field, `Some(None)` if it is left out; `None` at the end of the input.
    async fn fill(&mut self, field: &Field<'_>) -> Option<Option<Value>> {
        loop {
            self.say(&field.prompt());
            let line = self.lines.next_line().await.ok()??;
            match field.read(line.trim()) {
                Ok(value) => return Some(value),
                Err(complaint) => self.say(&format!("  {complaint}\n")),
            }
        }
    }

    fn say(&mut self, text: &str) {
        // A terminal that is gone reads nothing either, which ends the form.
        let _written = self.screen.write_all(text.as_bytes()).and_then(|()| self.screen.flush()).is_ok();
    }
}

/// One field of a form.
struct Field<'a> {
    name: &'a str,
    property: &'a Value,
    required: bool,
}

impl Field<'_> {
    fn text(&self, member: &str) -> Option<&str> {
        self.property.get(member).and_then(Value::as_str)
    }

    fn prompt(&self) -> String {
        let mut prompt = format!("  {}", safe(self.text("title").unwrap_or(self.name)));
        if let Some(description) = self.text("description") {
            prompt.extend([" (", &safe(description), ")"]);
        }
        let mut hints = vec![match self.choices().as_slice() {
            [] => self.text("type").unwrap_or("string").to_owned(),
            choices => {
                let all = choices.iter().map(|(value, title)| match title {
                    Some(title) if title != value => format!("{} = {}", safe(value), safe(title)),
                    _ => safe(value),
                });
                let several = if self.is_list() { "some of " } else { "" };
                format!("{several}{}", all.collect::<Vec<_>>().join(", "))
            }
        }];
        match self.property.get("default") {
            Some(Value::String(text)) => hints.push(format!("default {}", safe(text))),
            Some(default) => hints.push(format!("default {}", safe(&default.to_string()))),
            None if !self.required => hints.push("optional".to_owned()),
            None => {}
        }
        format!("{prompt} [{}]: ", hints.join("; "))
    }

    fn is_list(&self) -> bool {
        self.text("type") == Some("array")
    }

    /// The allowed values with their titles; none where every value is allowed.
    fn choices(&self) -> Vec<(String, Option<String>)> {
        let of =
            if self.is_list() { self.property.get("items").unwrap_or(self.property) } else { self.property };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(names) = of.get("enum").and_then(Value::as_array) {
            let titles = of.get("enumNames").and_then(Value::as_array);
            let title = |at: usize| titles.and_then(|titles| text(titles.get(at)?));
            return names
                .iter()
                .enumerate()
                .filter_map(|(at, name)| Some((text(name)?, title(at))))
                .collect();
        }
        let titled = of.get("oneOf").or_else(|| of.get("anyOf")).and_then(Value::as_array);
        let pair = |choice: &Value| Some((text(choice.get("const")?)?, choice.get("title").and_then(text)));
        titled.into_iter().flatten().filter_map(pair).collect()
    }

    /// What a line means: a value, or that the field is left out.
    fn read(&self, line: &str) -> Result<Option<Value>, String> {
        if line.is_empty() {
            return match self.property.get("default") {
                Some(default) => Ok(Some(default.clone())),
                None if self.required => Err("this is needed; Ctrl-D declines, Ctrl-C cancels".to_owned()),
                None => Ok(None),
            };
        }
        let value = match self.text("type").unwrap_or("string") {
            "integer" => {
                line.parse::<i64>().map(Value::from).map_err(|_| "a whole number, please".to_owned())?
            }
            "number" => {
                let number = line.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                Value::Number(number.ok_or("a number, please")?)
            }
            "boolean" => match line.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => true.into(),
                "n" | "no" | "false" => false.into(),
                _ => return Err("yes or no, please".to_owned()),
            },
            "array" => line.split(',').map(|part| self.choose(part.trim())).collect::<Result<Value, _>>()?,
            _ => self.choose(line)?,
        };
        self.within_bounds(&value).map(|()| Some(value))
    }

    fn choose(&self, text: &str) -> Result<Value, String> {
        let choices = self.choices();
        if choices.is_empty() {
            return Ok(text.into());
        }
        let meant = |(value, title): &&(String, Option<String>)| {
            value == text || title.as_deref().is_some_and(|title| title.eq_ignore_ascii_case(text))
        };
        let found = choices.iter().find(meant).map(|(value, _)| Value::from(value.as_str()));
        found.ok_or_else(|| "one of those, please".to_owned())
    }

    fn within_bounds(&self, value: &Value) -> Result<(), String> {
        let bound = |member: &str| self.property.get(member).and_then(Value::as_f64);
        #[expect(clippy::cast_precision_loss, reason = "nobody types so long a line")]
        let (size, least, most) = match value {
            Value::Number(number) => (number.as_f64(), bound("minimum"), bound("maximum")),
            Value::String(text) => {
                (Some(text.chars().count() as f64), bound("minLength"), bound("maxLength"))
            }
            Value::Array(items) => (Some(items.len() as f64), bound("minItems"), bound("maxItems")),
            _ => (None, None, None),
        };
        match (size, least, most) {
            (Some(size), Some(least), _) if size < least => Err(format!("at least {least}, please")),
            (Some(size), _, Some(most)) if size > most => Err(format!("at most {most}, please")),
            _ => Ok(()),
        }
    }
}

/// What a server wrote, without what would command the terminal.
fn safe(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn filled(params: &str, typed: &str) -> (Value, String) {
        let mut screen = Vec::new();
        let params = Raw::from_text(params.to_owned()).unwrap();
        let answer = Form::new(typed.as_bytes(), &mut screen).ask(&params).await;
        (answer, String::from_utf8(screen).unwrap())
    }

    const FORM: &str = r#"{"message": "Who\u001b[2J is it?", "requestedSchema": {
        "type": "object",
        "required": ["name", "age"],
        "properties": {
            "name": {"type": "string", "title": "Your name", "minLength": 2},
            "age": {"type": "integer", "minimum": 0},
            "kind": {"type": "string", "enum": ["a", "b"], "enumNames": ["Alpha", "Beta"], "default": "b"},
            "likes": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "Ex"}, {"const": "y"}]}},
            "sure": {"type": "boolean", "description": "really?"}
        }
    }}"#;

    #[tokio::test]
    async fn each_field_is_asked_until_it_is_right() {
        let (answer, screen) = filled(FORM, "\nA\nAda\nold\n-1\n36\n\nex,z\nex, y\nperhaps\nYes\n").await;
        let content = json!({"name": "Ada", "age": 36, "kind": "b", "likes": ["x", "y"], "sure": true});
        assert_eq!(answer, json!({"action": "accept", "content": content}));
        insta::assert_snapshot!(screen);
    }

    #[tokio::test]
    async fn what_is_optional_may_be_left_out() {
        let (answer, _) = filled(FORM, "Ada\n36\nalpha\n\n\n").await;
        let content = json!({"name": "Ada", "age": 36, "kind": "a"});
        assert_eq!(answer, json!({"action": "accept", "content": content}));
    }

    #[tokio::test]
    async fn the_end_of_the_input_declines_and_so_does_what_is_no_form() {
        assert_eq!(filled(FORM, "Ada\n").await.0, json!({"action": "decline"}));
        let elsewhere = r#"{"mode": "url", "message": "m", "url": "https://example.com"}"#;
        assert_eq!(filled(elsewhere, "").await.0, json!({"action": "decline"}));
        assert_eq!(filled(r#"{"message": "m"}"#, "").await.0, json!({"action": "accept", "content": {}}));
    }
}
