//! Pages that a tool shows a person: one HTML resource without any outside asset.
//!
//! A control does not act by itself: it posts the tool to call and its arguments to the window that shows the page, and
//! that host calls the tool. Text from callers enters a page through [`Escaped`] only; arguments travel as JSON in
//! attributes, escaped the same way, so no script ever contains them. Should markup slip through all the same, the content
//! policy runs no script but ours.
//!
//! Hosts show pages in frames that may run scripts and nothing else, so there are no forms, which would not be submitted,
//! no dialogs of the browser, and nothing that takes the focus from where the person is typing.

use std::fmt::{self, Write};

use moongate_wire::Raw;
use serde::Serialize;
use serde_json::{Value, json};

/// Text with the five characters that mean something in HTML replaced, fit for content and for quoted attributes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            let (plain, special) = rest.split_at(at);
            f.write_str(plain)?;
            f.write_str(match special.as_bytes().first() {
                Some(b'&') => "&amp;",
                Some(b'<') => "&lt;",
                Some(b'>') => "&gt;",
                Some(b'"') => "&quot;",
                _ => "&#39;",
            })?;
            rest = special.get(1..).unwrap_or_default();
        }
        f.write_str(rest)
    }
}

/// `data-tool="…" data-params="…"`: what makes a button or a form call `tool` with `params`.
pub fn action(tool: &str, params: &impl Serialize) -> String {
    let params = Raw::of(params);
    format!(r#"data-tool="{}" data-params="{}""#, Escaped(tool), Escaped(params.as_str()))
}

/// A button that calls `tool` with `params`. `name` is what a screen reader says.
pub fn button(label: &str, name: &str, tool: &str, params: &impl Serialize) -> String {
    button_with("", label, name, &action(tool, params))
}

/// A button that must be pressed twice, because what `tool` does cannot be undone; after the first time it says `confirm`.
pub fn risky_button(label: &str, name: &str, confirm: &str, tool: &str, params: &impl Serialize) -> String {
    let confirm = format!(r#"data-confirm="{}" "#, Escaped(confirm));
    button_with(&confirm, label, name, &action(tool, params))
}

fn button_with(more: &str, label: &str, name: &str, action: &str) -> String {
    let (label, name) = (Escaped(label), Escaped(name));
    format!(r#"<button type="button" aria-label="{name}" {more}{action}>{label}</button>"#)
}

/// A whole page titled `title` around `body`, which is HTML already.
pub fn page(title: &str, body: &str) -> String {
    let mut out = String::with_capacity(body.len() + STYLE.len() + SCRIPT.len() + 512);
    let written = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src '{SCRIPT_HASH}'; form-action 'none'; base-uri 'none'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title><style>{STYLE}</style></head>\
         <body><main>{body}<p id=\"status\" role=\"status\"></p></main><script>{SCRIPT}</script></body></html>",
        Escaped(title)
    );
    written.expect("writing to a string cannot fail");
    out
}

/// The content block that embeds `html` in a result.
pub fn resource(uri: &str, html: &str) -> Raw {
    Raw::of(&embedded(uri, html))
}

/// As [`resource`], with `annotations` that tell the host what it is about.
pub fn annotated_resource(uri: &str, html: &str, annotations: Value) -> Raw {
    let mut block = embedded(uri, html);
    if let Some(members) = block.as_object_mut() {
        members.insert("annotations".to_owned(), annotations);
    }
    Raw::of(&block)
}

fn embedded(uri: &str, html: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": "text/html", "text": html}})
}

const STYLE: &str = "\
:root{--fg:#1b1f24;--bg:#fff;--muted:#57606a;--line:#d0d7de;--edge:#818b98;--accent:#0a58ca;--on-accent:#fff;--danger:#b3261e;--on-danger:#fff}\
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--muted:#9aa4af;--line:#3d444d;--edge:#6e7681;--accent:#6cb0ff;--on-accent:#0d1117;--danger:#ff8f87;--on-danger:#0d1117}}\
*{box-sizing:border-box}\
body{margin:0;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);accent-color:var(--accent);overflow-wrap:anywhere}\
h1{font-size:1.15rem;line-height:1.35;margin:0 0 .75rem}\
h2{font-size:1rem;margin:0}\
p{margin:.5rem 0 0}\
h1,h2,p,label span,th{white-space:pre-wrap;unicode-bidi:plaintext}\
fieldset{border:0;margin:0;padding:0;min-width:0}\
label{display:flex;gap:.5rem;padding:.35rem .25rem;border-radius:6px;cursor:pointer}\
label input{flex:none;width:1rem;height:1rem;margin:.25rem 0 0}\
label span{flex:1;min-width:0}\
input[type=text]{width:100%;padding:.5rem;font:inherit;color:inherit;background:transparent;border:1px solid var(--edge);border-radius:6px}\
.row{display:flex;flex-wrap:wrap;gap:.5rem;margin-top:.75rem;align-items:center}\
button{font:inherit;padding:.4rem .9rem;border:1px solid var(--edge);border-radius:6px;background:transparent;color:inherit;cursor:pointer}\
button.primary{background:var(--accent);border-color:var(--accent);color:var(--on-accent)}\
button.armed{background:var(--danger);border-color:var(--danger);color:var(--on-danger)}\
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}\
:disabled,:has(>:disabled){opacity:.6;cursor:default}\
ul.cards{list-style:none;margin:0;padding:0}\
ul.cards li{border:1px solid var(--line);border-radius:8px;padding:.75rem;margin-bottom:.75rem}\
.muted,#status{color:var(--muted);font-size:.875rem}\
.chart{display:grid;grid-template-columns:auto minmax(0,1fr);column-gap:.5rem;margin:1.25rem 0 .75rem;font-size:.75rem;line-height:1}\
.ticks{display:flex;flex-direction:column;justify-content:space-between;margin:-.5em 0;text-align:right;white-space:nowrap}\
.ticks :only-child{margin:auto 0}\
.plot{height:clamp(11rem,45vw,20rem)}\
svg{display:block;width:100%;height:100%;overflow:visible}\
svg .axis{stroke:var(--line)}\
svg .zero{stroke:var(--edge)}\
svg .mark{fill:var(--accent)}\
svg .line{fill:none;stroke:var(--accent);stroke-width:2;vector-effect:non-scaling-stroke}\
.labels{grid-column:2;position:relative;height:2em;line-height:1.5}\
.labels span{position:absolute;top:.4em;left:var(--from);width:var(--room);padding:0 .15rem;overflow:hidden;text-align:center;text-overflow:ellipsis;white-space:nowrap}\
.labels.some span{text-align:start}\
@media(max-width:30rem){.labels.many span{width:min(2*var(--room),100% - var(--from));text-align:start}.labels.many span:nth-child(even){display:none}}\
summary{cursor:pointer;width:fit-content}\
table{border-collapse:collapse;margin-top:.5rem}\
th,td{padding:.2rem .5rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top;font-weight:normal;text-align:start}\
td{text-align:end;font-variant-numeric:tabular-nums}";

/// Names [`SCRIPT`] in the content policy. A test says what it must be.
const SCRIPT_HASH: &str = "sha256-fSXuhseAXRHdf5Gdho+Sqw039yuv3NCekYfUx2dYONU=";

// Any window may be the host, so the message goes to `*`; it carries nothing that the host did not put on the page.
//
// A dialog is answered once: what it says is sent, then its controls are done with. A double click is one press. While an
// input method composes a character, its keys are not ours (Safari tells by the code 229 only).
const SCRIPT: &str = r#"
"use strict";
const say = text => { document.getElementById("status").textContent = text; };
const answers = {
  text: dialog => dialog.querySelector("input").value,
  select: dialog => answers.multiselect(dialog)[0],
  multiselect: dialog => [...dialog.querySelectorAll("input:checked")].map(input => JSON.parse(input.value)),
};
const arm = button => {
  const {textContent, ariaLabel} = button;
  button.classList.add("armed");
  button.textContent = button.dataset.confirm;
  button.ariaLabel = `${ariaLabel}: ${button.dataset.confirm}`;
  button.focus();
  button.addEventListener("blur", () => {
    button.classList.remove("armed");
    Object.assign(button, {textContent, ariaLabel});
  }, {once: true});
};
const press = button => {
  const {tool: toolName, answer: kind, confirm} = button.dataset;
  if (confirm && !button.classList.contains("armed")) { arm(button); return; }
  const dialog = button.closest("[role=dialog]");
  const params = JSON.parse(button.dataset.params);
  if (kind) {
    params.answer = answers[kind](dialog);
    if (params.answer === undefined) { say("Choose one first."); return; }
  }
  parent.postMessage({type: "tool", payload: {toolName, params}}, "*");
  say("Sent.");
  for (const control of dialog?.querySelectorAll("button,input") ?? []) control.disabled = true;
};
document.addEventListener("click", event => {
  const button = event.target.closest("button[data-tool]");
  if (button && event.detail < 2) press(button);
});
document.addEventListener("keydown", event => {
  if (event.isComposing || event.keyCode === 229) return;
  if (event.key === "Escape") document.querySelector("[data-cancel]")?.click();
  if (event.key === "Enter" && event.target.matches("input")) {
    event.preventDefault();
    document.querySelector("[data-answer]")?.click();
  }
});
"#;

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    #[test]
    fn the_five_specials_are_replaced_and_nothing_else() {
        assert_eq!(Escaped(r#"a<b>&"c"'d' é"#).to_string(), "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39; é");
        assert_eq!(Escaped("").to_string(), "");
    }

    #[test]
    fn arguments_cannot_leave_their_attribute() {
        let html = button("x", "x", "tool", &json!({"id": "\"></script><script>alert(1)</script>"}));
        assert_eq!(html.matches('<').count(), 2, "{html}");
    }

    #[test]
    fn what_cannot_be_undone_asks_again() {
        let plain = button("Delete", "Delete <x>", "tool", &json!({}));
        let risky = risky_button("Delete", "Delete <x>", "\"Sure\"?", "tool", &json!({}));
        assert_eq!(risky, plain.replace("data-tool", "data-confirm=\"&quot;Sure&quot;?\" data-tool"));
    }

    #[test]
    fn the_content_policy_names_our_script() {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, SCRIPT.as_bytes());
        let expected = format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(digest));
        assert_eq!(SCRIPT_HASH, expected);
    }

    #[test]
    fn a_page_needs_nothing_from_outside() {
        let html = page("t", "<p>b</p>");
        assert!(!html.contains("http:") && !html.contains("https:") && !html.contains("src="));
        assert!(html.contains("prefers-color-scheme:dark"));
    }
}
