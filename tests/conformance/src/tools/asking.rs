//! Tools that ask the client: its person, its model, its open directories; one after another or all at once.
//!
//! A client of an older version is asked while the call runs, a newer one gets the questions as a result and calls
//! again. Nothing here can tell: the keys are the ones the suite looks for, and `Peer` does the rest.

use moongate_core::{Answer, Ask, CallError, Context, Raw};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Definition, with_text, without_arguments};
use crate::{
    Fixture,
    content::{said, text},
    question::{confirm, fill, filled, form, generate, generated, line, rooted, sample},
};

const NAME: &str = "What is your name?";
const CAPITAL: &str = "What is the capital of France?";

pub(super) fn definitions() -> Vec<Definition> {
    let none = without_arguments;
    vec![
        ("test_sampling", "Asks the client's model", with_text("prompt", "What to ask")),
        (
            "test_elicitation",
            "Asks the person for a name and an address",
            with_text("message", "What to say"),
        ),
        ("test_elicitation_sep1034_defaults", "Asks with a default value of every type", none()),
        ("test_elicitation_sep1330_enums", "Asks with every kind of choice", none()),
        ("test_missing_capability", "Needs a client with a model", none()),
        ("test_streaming_elicitation", "Asks the person to confirm", none()),
        ("test_input_required_result_elicitation", "Asks for a name and greets", none()),
        ("test_input_required_result_sampling", "Asks the client's model for a capital", none()),
        ("test_input_required_result_list_roots", "Asks for the open directories", none()),
        ("test_input_required_result_request_state", "Asks to confirm, with a state to bring back", none()),
        ("test_input_required_result_multiple_inputs", "Asks three things at once", none()),
        ("test_input_required_result_multi_round", "Asks two things, one after the other", none()),
        (
            "test_input_required_result_tampered_state",
            "Asks to confirm, with a state nobody may change",
            none(),
        ),
        ("test_input_required_result_capabilities", "Asks whatever this client can answer", none()),
        ("test_ask_twice", "Asks the person, then the model, and says how often it was started", none()),
    ]
}

/// Runs the tool, if it is one of these.
pub(super) async fn call(
    fixture: &Fixture,
    name: &str,
    arguments: &Raw,
    cx: &Context,
) -> Option<Result<Raw, CallError>> {
    Some(match name {
        "test_sampling" => sampling(arguments, cx).await,
        "test_elicitation" => elicitation(arguments, cx).await,
        "test_elicitation_sep1034_defaults" => elicit(cx, "defaults", defaults()).await,
        "test_elicitation_sep1330_enums" => elicit(cx, "choices", choices()).await,
        "test_missing_capability" | "test_input_required_result_sampling" => capital(cx).await,
        "test_streaming_elicitation" => elicit(cx, "confirm", confirm("Go on?")).await,
        "test_input_required_result_elicitation" => greeting(cx).await,
        "test_input_required_result_list_roots" => roots(cx).await,
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            state(cx).await
        }
        "test_input_required_result_multiple_inputs" => at_once(cx).await,
        "test_input_required_result_multi_round" => rounds(cx).await,
        "test_input_required_result_capabilities" => what_it_can(cx).await,
        "test_ask_twice" => twice(fixture, cx).await,
        _ => return None,
    })
}

async fn sampling(arguments: &Raw, cx: &Context) -> Result<Raw, CallError> {
    #[derive(Deserialize)]
    struct Arguments {
        prompt: String,
    }
    let Arguments { prompt } = arguments.parse().map_err(CallError::invalid_params)?;
    let response = generate(cx, "sampling", sample(&prompt, 100)).await?;
    Ok(said(format!("LLM response: {response}")))
}

async fn elicitation(arguments: &Raw, cx: &Context) -> Result<Raw, CallError> {
    #[derive(Deserialize)]
    struct Arguments {
        message: String,
    }
    let Arguments { message } = arguments.parse().map_err(CallError::invalid_params)?;
    let fields = json!({
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    });
    let answer = fill(cx, "user", form(&message, &fields, &["username", "email"])).await?;
    Ok(said(format!("User response: {}", answer.described())))
}

async fn elicit(cx: &Context, key: &str, form: Ask) -> Result<Raw, CallError> {
    let answer = fill(cx, key, form).await?;
    Ok(said(format!("Elicitation completed: {}", answer.described())))
}

fn defaults() -> Ask {
    let fields = json!({
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {
            "type": "string",
            "description": "User status",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "description": "Verification status", "default": true},
    });
    form("Please review and update the form fields with defaults", &fields, &[])
}

fn choices() -> Ask {
    let titled = |words: [&str; 3]| -> Vec<Value> {
        ["value1", "value2", "value3"]
            .iter()
            .zip(words)
            .map(|(value, title)| json!({"const": value, "title": title}))
            .collect()
    };
    let options = ["option1", "option2", "option3"];
    let fields = json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"])},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": titled(["First Choice", "Second Choice", "Third Choice"])},
        },
    });
    form("Please select options from the enum fields", &fields, &[])
}

async fn capital(cx: &Context) -> Result<Raw, CallError> {
    let response = generate(cx, "capital_question", sample(CAPITAL, 100)).await?;
    Ok(said(format!("The model said: {response}")))
}

async fn greeting(cx: &Context) -> Result<Raw, CallError> {
    let answer = fill(cx, "user_name", line(NAME, "name")).await?;
    Ok(said(match answer.text("name") {
        Some(name) => format!("Hello, {name}!"),
        None => format!("No name was given: {}", answer.described()),
    }))
}

async fn roots(cx: &Context) -> Result<Raw, CallError> {
    let roots = rooted(cx.peer.ask_one("client_roots", Ask::Roots).await?)?;
    Ok(said(format!("Open directories: {}", roots.join(", "))))
}

/// Whether the state that came back is good is for the gateway to say: only then does the answer arrive here.
async fn state(cx: &Context) -> Result<Raw, CallError> {
    let answer = fill(cx, "confirm", confirm("Please confirm")).await?;
    Ok(said(format!("state-ok: {}", answer.described())))
}

async fn at_once(cx: &Context) -> Result<Raw, CallError> {
    let questions = vec![
        ("user_name", line(NAME, "name")),
        ("greeting", sample("Generate a greeting", 50)),
        ("client_roots", Ask::Roots),
    ];
    let [name, greeting, roots] = expect_all(cx.peer.ask(questions).await?)?;
    let (name, greeting, roots) = (filled(name)?, generated(greeting)?, rooted(roots)?);
    let name = name.text("name").unwrap_or("nobody");
    Ok(said(format!("{greeting} {name}, with {} open directories", roots.len())))
}

fn expect_all<const N: usize>(answers: Vec<Answer>) -> Result<[Answer; N], CallError> {
    let count = answers.len();
    answers
        .try_into()
        .map_err(|_| CallError::internal("a question was left unanswered", format!("{count} of {N} answers")))
}

async fn rounds(cx: &Context) -> Result<Raw, CallError> {
    let first = fill(cx, "step1", line("Step 1: What is your name?", "name")).await?;
    let second = fill(cx, "step2", line("Step 2: What is your favorite color?", "color")).await?;
    let name = first.text("name").unwrap_or("Somebody");
    Ok(said(format!("{name} likes {}", second.text("color").unwrap_or("no color"))))
}

async fn what_it_can(cx: &Context) -> Result<Raw, CallError> {
    let all = [
        ("capital_question", sample(CAPITAL, 100)),
        ("user_name", line(NAME, "name")),
        ("client_roots", Ask::Roots),
    ];
    let questions: Vec<_> = all.into_iter().filter(|(_, question)| cx.peer.can(question)).collect();
    let keys: Vec<&str> = questions.iter().map(|(key, _)| *key).collect();
    if !keys.is_empty() {
        cx.peer.ask(questions).await?;
    }
    Ok(said(format!("Asked for: {}", keys.join(", "))))
}

async fn twice(fixture: &Fixture, cx: &Context) -> Result<Raw, CallError> {
    let execution = fixture.count_execution();
    let answer = fill(cx, "user_name", line(NAME, "name")).await?;
    let name = answer.text("name").unwrap_or("nobody");
    let greeting = generate(cx, "greeting", sample(&format!("Greet {name}"), 50)).await?;
    Ok(Raw::of(&json!({
        "content": [text(&greeting)],
        "structuredContent": {"name": name, "greeting": greeting, "execution": execution},
    })))
}
