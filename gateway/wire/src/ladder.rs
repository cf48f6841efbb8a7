//! The checks a modern request passes before it is dispatched, in the order the protocol gives them: the first that
//! fails answers.
//!
//! 1 the envelope is complete, 2 the version header repeats it, 3 the version is spoken here, 4 `Mcp-Method` and
//! 5 `Mcp-Name` repeat the body, 6 the method exists. Over stdio there are no headers, which leaves 1, 3 and 6. What
//! needs the catalog (parameters, `Mcp-Param-*`, capabilities) comes later and elsewhere.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    Meta, Method, Params, Refusal, Request, RpcError, Version, code,
    header::{self, mismatch},
    outline::Field,
    params,
};

/// The headers that repeat the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    /// `MCP-Protocol-Version`
    pub version: Option<&'a [u8]>,
    /// `Mcp-Method`
    pub method: Option<&'a [u8]>,
    /// `Mcp-Name`
    pub name: Option<&'a [u8]>,
}

/// Checks a modern request that came by HTTP.
pub fn check_http(request: &Request, headers: &Headers<'_>) -> Result<(Version, Method), Refusal> {
    at_a_glance(request, headers).map_or_else(|| step_by_step(request, headers), Ok)
}

/// What nearly every request says: the newest version, and headers that repeat the body byte for byte. Nothing is decoded
/// and nothing refused; whatever looks different goes up the ladder.
fn at_a_glance(request: &Request, headers: &Headers<'_>) -> Option<(Version, Method)> {
    let [version] = Version::MODERN;
    let (params, expected) = (&request.params, Some(version.as_str().as_bytes()));
    let is_same = params.written(Field::ProtocolVersion) == expected
        && params.meta().declares_capabilities()
        && headers.version == expected
        && headers.method == Some(request.method.as_bytes());
    let method = Method::parse(&request.method, version).filter(|_| is_same)?;
    let repeats =
        |field| headers.name.is_some_and(header::is_literal) && headers.name == params.written(field);
    let is_named = match method.named_by() {
        None => true,
        Some("uri") => repeats(Field::Uri),
        Some("taskId") => repeats(Field::TaskId),
        Some(_) => repeats(Field::Name),
    };
    is_named.then_some((version, method))
}

fn step_by_step(request: &Request, headers: &Headers<'_>) -> Result<(Version, Method), Refusal> {
    let bad = |error| Refusal { status: 400, error };
    let claimed = claimed(request.params.meta()).map_err(bad)?;
    repeats("MCP-Protocol-Version", headers.version, &claimed).map_err(bad)?;
    let version = supported(&claimed).map_err(bad)?;
    repeats("Mcp-Method", headers.method, &request.method).map_err(bad)?;
    let method = Method::parse(&request.method, version);
    if let Some(method) = method {
        names(method, &request.params, headers.name).map_err(bad)?;
    }
    method
        .map(|method| (version, method))
        .ok_or_else(|| Refusal { status: 404, error: not_found(&request.method) })
}

/// Checks a modern request that came by stdio.
pub fn check_stdio(request: &Request) -> Result<(Version, Method), RpcError> {
    let version = supported(&claimed(request.params.meta())?)?;
    let method = Method::parse(&request.method, version).ok_or_else(|| not_found(&request.method))?;
    Ok((version, method))
}

/// -32022: the version is not spoken here, and these are.
pub(crate) fn unsupported(requested: &str) -> RpcError {
    #[derive(Serialize)]
    struct Data<'a> {
        supported: [Version; Version::MODERN.len()],
        requested: &'a str,
    }
    RpcError::new(code::UNSUPPORTED_VERSION, "Unsupported protocol version")
        .with_data(Data { supported: Version::MODERN, requested })
}

/// -32602: the envelope lacks keys, and these are they.
pub(crate) fn incomplete(meta: Meta<'_>) -> RpcError {
    let version = meta.protocol_version().is_none().then_some("protocolVersion (a string)");
    let capabilities = (!meta.declares_capabilities()).then_some("clientCapabilities (an object)");
    let missing: Vec<_> =
        version.into_iter().chain(capabilities).map(|key| format!("{}{key}", params::PREFIX)).collect();
    RpcError::new(code::INVALID_PARAMS, format!("Invalid params: _meta must have {}", missing.join(" and ")))
}

/// The version that a complete envelope claims.
fn claimed(meta: Meta<'_>) -> Result<Cow<'_, str>, RpcError> {
    meta.protocol_version().filter(|_| meta.declares_capabilities()).ok_or_else(|| incomplete(meta))
}

fn supported(claimed: &str) -> Result<Version, RpcError> {
    let version = Version::MODERN.into_iter().find(|version| version.as_str() == claimed);
    version.ok_or_else(|| unsupported(claimed))
}

fn repeats(name: &str, header: Option<&[u8]>, body: &str) -> Result<(), RpcError> {
    match header {
        None => Err(mismatch(format_args!("{name} is missing"))),
        Some(value) if header::trim(value) == body.as_bytes() => Ok(()),
        Some(_) => Err(mismatch(format_args!("{name} does not match the body"))),
    }
}

fn names(method: Method, params: &Params, header: Option<&[u8]>) -> Result<(), RpcError> {
    if method.named_by().is_none() {
        return Ok(());
    }
    let body = params.target(method);
    let header = header.ok_or_else(|| mismatch(format_args!("Mcp-Name is missing")))?;
    let header = header::decode(header).map_err(|error| mismatch(format_args!("Mcp-Name: {error}")))?;
    if body == Some(&*header) {
        Ok(())
    } else {
        Err(mismatch(format_args!("Mcp-Name does not match the body")))
    }
}

/// -32601: no such method, whose name is not repeated at any length.
pub fn not_found(method: &str) -> RpcError {
    let shown: String = method.chars().take(64).collect();
    RpcError::new(code::METHOD_NOT_FOUND, format!("Method not found: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Message};

    const VERSION: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    const CAPABILITIES: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    const CURRENT: &str = "2026-07-28";

    fn request(method: &str, more: &str, meta: &str) -> Request {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{more}"_meta":{meta}}}}}"#);
        let Ok(Frame::One(Message::Request(request))) = Frame::parse(&text.into()) else {
            panic!("{method} {more}")
        };
        request
    }

    fn good(method: &str, more: &str) -> Request {
        request(method, more, &format!("{{{VERSION},{CAPABILITIES}}}"))
    }

    fn headers<'a>(version: &'a str, method: &'a str, name: &'a str) -> Headers<'a> {
        let header = |text: &'a str| (text != "-").then_some(text.as_bytes());
        Headers { version: header(version), method: header(method), name: header(name) }
    }

    fn check(request: &Request, headers: &Headers<'_>) -> Result<Method, (u16, i64, String)> {
        let told =
            |refusal: Refusal| (refusal.status, refusal.error.code, refusal.error.message.into_owned());
        check_http(request, headers).map(|(_, method)| method).map_err(told)
    }

    #[test]
    fn an_incomplete_envelope_names_what_is_missing() {
        let headers = headers(CURRENT, "tools/list", "-");
        for (meta, missing, present) in [
            ("{}".to_owned(), &["protocolVersion", "clientCapabilities"][..], &[][..]),
            ("7".to_owned(), &["protocolVersion", "clientCapabilities"], &[]),
            (format!("{{{VERSION}}}"), &["clientCapabilities"], &["protocolVersion"]),
            (format!("{{{CAPABILITIES}}}"), &["protocolVersion"], &["clientCapabilities"]),
            (
                r#"{"io.modelcontextprotocol/protocolVersion":7,"io.modelcontextprotocol/clientCapabilities":[]}"#.to_owned(),
                &["protocolVersion", "clientCapabilities"],
                &[],
            ),
        ] {
            let request_ = request("tools/list", "", &meta);
            let (status, code, message) = check(&request_, &headers).unwrap_err();
            assert_eq!((status, code), (400, code::INVALID_PARAMS), "{meta}");
            for key in missing {
                assert!(message.contains(&format!("io.modelcontextprotocol/{key}")), "{meta}: {message}");
            }
            for key in present {
                assert!(!message.contains(key), "{meta}: {message}");
            }
            assert_eq!(check_stdio(&request_).unwrap_err().code, code::INVALID_PARAMS);
        }
    }

    #[test]
    fn a_glance_lets_nothing_through_that_the_steps_refuse() {
        let escaped = r#"{"io.modelcontextprotocol/protocolVersion":"2026\u002d07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let mut seen = 0;
        for meta in [&format!("{{{VERSION},{CAPABILITIES}}}"), &format!("{{{VERSION}}}"), "{}", escaped] {
            for name in ["add", "a b", " a", "é", r"\u0061dd", "=?base64?YWRk?=", ""] {
                for method in ["tools/call", "tools/list", "resources/read", "tasks/get", "no/such"] {
                    let target = format!(r#""name":"{name}","uri":"{name}","taskId":"{name}","#);
                    let request = request(method, &target, meta);
                    for version in [CURRENT, "2026-07-28 ", "2025-06-18", "-"] {
                        for header in ["add", "a b", " a", "a", "é", "=?base64?YWRk?=", "", "-"] {
                            let headers = headers(version, method, header);
                            let Some(glance) = at_a_glance(&request, &headers) else { continue };
                            assert_eq!(
                                step_by_step(&request, &headers),
                                Ok(glance),
                                "{request:?} {headers:?}"
                            );
                            seen += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(seen, 3 * 2 + 7 * 8, "what is named by two names that are literal, and every list");
    }

    #[test]
    fn the_first_failing_rung_answers() {
        let old = format!(r#"{{"io.modelcontextprotocol/protocolVersion":"2025-06-18",{CAPABILITIES}}}"#);
        let future = format!(r#"{{"io.modelcontextprotocol/protocolVersion":"2031-01-01",{CAPABILITIES}}}"#);
        let call = r#""name":"add","arguments":{},"#;
        let mismatch = |part: &'static str| Err((400, code::HEADER_MISMATCH, part));
        for (request_, headers, expected) in [
            (good("tools/list", ""), headers(CURRENT, "tools/list", "-"), Ok(Method::ListTools)),
            (
                good("tools/list", ""),
                headers(" 2026-07-28 ", "\ttools/list ", "ignored"),
                Ok(Method::ListTools),
            ),
            (good("tools/call", call), headers(CURRENT, "tools/call", "add"), Ok(Method::CallTool)),
            (
                good("tools/call", call),
                headers(CURRENT, "tools/call", " =?base64?YWRk?= "),
                Ok(Method::CallTool),
            ),
            (
                good("resources/read", r#""uri":"x://é","#),
                headers(CURRENT, "resources/read", "=?base64?eDovL8Op?="),
                Ok(Method::ReadResource),
            ),
            (
                good("tools/list", ""),
                headers("-", "tools/list", "-"),
                mismatch("MCP-Protocol-Version is missing"),
            ),
            (
                good("tools/list", ""),
                headers("2025-06-18", "-", "-"),
                mismatch("MCP-Protocol-Version does not match"),
            ),
            // A mismatch wins over a version that is not supported.
            (
                request("tools/list", "", &future),
                headers(CURRENT, "tools/list", "-"),
                mismatch("MCP-Protocol-Version"),
            ),
            (
                request("tools/list", "", &future),
                headers("2031-01-01", "-", "-"),
                Err((400, code::UNSUPPORTED_VERSION, "")),
            ),
            (
                request("tools/list", "", &old),
                headers("2025-06-18", "-", "-"),
                Err((400, code::UNSUPPORTED_VERSION, "")),
            ),
            (good("tools/list", ""), headers(CURRENT, "-", "-"), mismatch("Mcp-Method is missing")),
            (
                good("tools/list", ""),
                headers(CURRENT, "TOOLS/LIST", "-"),
                mismatch("Mcp-Method does not match"),
            ),
            (good("tools/call", call), headers(CURRENT, "tools/call", "-"), mismatch("Mcp-Name is missing")),
            (
                good("tools/call", call),
                headers(CURRENT, "tools/call", "sub"),
                mismatch("Mcp-Name does not match"),
            ),
            (
                good("tools/call", ""),
                headers(CURRENT, "tools/call", "add"),
                mismatch("Mcp-Name does not match"),
            ),
            (
                good("prompts/get", call),
                headers(CURRENT, "prompts/get", "=?base64?YWR?="),
                mismatch("Mcp-Name"),
            ),
            (good("nope", ""), headers(CURRENT, "nope", "-"), Err((404, code::METHOD_NOT_FOUND, "nope"))),
            (
                good("initialize", ""),
                headers(CURRENT, "initialize", "-"),
                Err((404, code::METHOD_NOT_FOUND, "")),
            ),
            (good("ping", ""), headers(CURRENT, "ping", "-"), Err((404, code::METHOD_NOT_FOUND, ""))),
            (
                good("logging/setLevel", ""),
                headers(CURRENT, "logging/setLevel", "-"),
                Err((404, code::METHOD_NOT_FOUND, "")),
            ),
            (good("nope", ""), headers(CURRENT, "-", "-"), mismatch("Mcp-Method")),
        ] {
            let answer = check(&request_, &headers);
            match (answer, expected) {
                (Ok(method), Ok(expected)) => assert_eq!(method, expected),
                (Err((status, code, message)), Err((expected_status, expected_code, part))) => {
                    assert_eq!((status, code), (expected_status, expected_code), "{message}");
                    assert!(message.contains(part), "{message}");
                }
                (answer, expected) => panic!("{request_:?} {headers:?}: {answer:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn what_is_done_with_a_task_is_named_by_the_task() {
        let name = |method: &str, header: &str| {
            check(&good(method, r#""taskId":"t1","#), &headers(CURRENT, method, header))
        };
        for (method, known) in [
            ("tasks/get", Method::GetTask),
            ("tasks/update", Method::UpdateTask),
            ("tasks/cancel", Method::CancelTask),
        ] {
            assert_eq!(name(method, "t1"), Ok(known));
            assert_eq!(name(method, "=?base64?dDE=?="), Ok(known));
            for wrong in ["t2", "-", ""] {
                assert_eq!(name(method, wrong).unwrap_err().1, code::HEADER_MISMATCH, "{method} {wrong}");
            }
        }
        assert_eq!(name("tasks/result", "t1").unwrap_err().0, 404);
    }

    #[test]
    fn stdio_has_no_headers_to_check() {
        let request_ = good("tools/call", "");
        assert_eq!(check_stdio(&request_), Ok((Version::V2026_07_28, Method::CallTool)));
        let request_ = good("ping", "");
        assert_eq!(check_stdio(&request_).unwrap_err().code, code::METHOD_NOT_FOUND);
        let old = format!(r#"{{"io.modelcontextprotocol/protocolVersion":"2025-06-18",{CAPABILITIES}}}"#);
        let request_ = request("tools/list", "", &old);
        let error = check_stdio(&request_).unwrap_err();
        assert_eq!(error.code, code::UNSUPPORTED_VERSION);
        assert_eq!(error.data.unwrap().as_str(), r#"{"supported":["2026-07-28"],"requested":"2025-06-18"}"#);
    }
}
