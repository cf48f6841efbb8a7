//! Pages that a tool shows a person: one HTML resource without any outside asset.
//!
//! A control does not act by itself: it posts the tool to call and its arguments to the window that shows the page, and
//! that host calls the tool. Text from callers enters a page through [`Escaped`] only; arguments travel as JSON in
//! attributes, escaped the same way, so no script ever contains them.

use std::fmt::{self, Write};

use moongate_wire::Raw;
use serde::Serialize;
use serde_json::json;

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
    format!(
        r#"<button type="button" aria-label="{}" {}>{}</button>"#,
        Escaped(name),
        action(tool, params),
        Escaped(label)
    )
}

/// A whole page titled `title` around `body`, which is HTML already.
pub fn page(title: &str, body: &str) -> String {
    let mut out = String::with_capacity(body.len() + STYLE.len() + SCRIPT.len() + 512);
    let written = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; form-action 'none'; base-uri 'none'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title><style>{STYLE}</style></head>\
         <body>{body}<p id=\"status\" role=\"status\" aria-live=\"polite\"></p><script>{SCRIPT}</script></body></html>",
        Escaped(title)
    );
    written.expect("writing to a string cannot fail");
    out
}

/// The content block that embeds `html` in a result.
pub fn resource(uri: &str, html: &str) -> Raw {
    Raw::of(&json!({"type": "resource", "resource": {"uri": uri, "mimeType": "text/html", "text": html}}))
}

const STYLE: &str = "\
:root{--fg:#1b1f24;--bg:#fff;--muted:#57606a;--line:#d0d7de;--accent:#0a58ca;--on-accent:#fff}\
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--muted:#9aa4af;--line:#3d444d;--accent:#6cb0ff;--on-accent:#0d1117}}\
*{box-sizing:border-box}\
body{margin:0;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg)}\
h1{font-size:1.15rem;margin:0 0 .75rem;white-space:pre-wrap;overflow-wrap:anywhere}\
p{overflow-wrap:anywhere;white-space:pre-wrap}\
fieldset{border:0;margin:0;padding:0}\
label{display:flex;gap:.5rem;padding:.35rem .25rem;overflow-wrap:anywhere}\
input[type=text]{width:100%;padding:.5rem;font:inherit;color:inherit;background:transparent;border:1px solid var(--line);border-radius:6px}\
.row{display:flex;flex-wrap:wrap;gap:.5rem;margin-top:.75rem;align-items:center}\
button{font:inherit;padding:.4rem .9rem;border:1px solid var(--line);border-radius:6px;background:transparent;color:inherit;cursor:pointer}\
button.primary{background:var(--accent);border-color:var(--accent);color:var(--on-accent)}\
button:focus-visible,input:focus-visible{outline:2px solid var(--accent);outline-offset:2px}\
button:disabled{opacity:.5;cursor:default}\
ul.cards{list-style:none;margin:0;padding:0}\
ul.cards li{border:1px solid var(--line);border-radius:8px;padding:.75rem;margin-bottom:.75rem}\
.muted,#status{color:var(--muted);font-size:.875rem}\
svg{width:100%;height:auto;color:var(--fg)}\
svg text{fill:currentColor;font-size:12px}\
svg .axis{stroke:var(--line)}\
svg .mark{fill:var(--accent)}\
svg .line{fill:none;stroke:var(--accent);stroke-width:2}";

// Any window may be the host, so the message goes to `*`; it carries nothing that the host did not put on the page.
const SCRIPT: &str = r#"
"use strict";
const say = text => { document.getElementById("status").textContent = text; };
const call = (toolName, params) => {
  parent.postMessage({type: "tool", payload: {toolName, params}}, "*");
  say("Sent.");
};
const answerOf = form => {
  const picked = [...form.querySelectorAll("[name=answer]:checked")].map(input => input.value);
  if (form.dataset.kind === "multiselect") return picked;
  if (form.dataset.kind === "select") return picked[0];
  return form.elements.answer.value;
};
document.addEventListener("click", event => {
  const button = event.target.closest("button[data-tool]");
  if (button) call(button.dataset.tool, JSON.parse(button.dataset.params));
});
document.addEventListener("submit", event => {
  event.preventDefault();
  const form = event.target;
  const answer = answerOf(form);
  if (answer === undefined) { say("Choose one first."); return; }
  call(form.dataset.tool, {...JSON.parse(form.dataset.params), answer});
  for (const control of form.elements) control.disabled = true;
});
document.addEventListener("keydown", event => {
  const form = document.querySelector("form[data-tool]");
  if (event.key === "Escape") document.querySelector("[data-cancel]:not(:disabled)")?.click();
  if (event.key === "Enter" && form && event.target.matches("input[type=radio],input[type=checkbox]")) {
    event.preventDefault();
    form.requestSubmit();
  }
});
"#;

#[cfg(test)]
mod tests {
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
    fn a_page_needs_nothing_from_outside() {
        let html = page("t", "<p>b</p>");
        assert!(!html.contains("http:") && !html.contains("https:") && !html.contains("src="));
        assert!(html.contains("prefers-color-scheme:dark"));
    }
}
