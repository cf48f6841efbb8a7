//! Frames as tables and properties.

use proptest::prelude::*;

use super::*;
use crate::write;

fn parse(text: &str) -> Result<Frame, Malformed> {
    Frame::parse(&Bytes::from(text.to_owned()))
}

fn one(text: &str) -> Message {
    match parse(text) {
        Ok(Frame::One(message)) => message,
        other => panic!("{text}: {other:?}"),
    }
}

fn raw(text: &str) -> Raw {
    Raw::from_text(text.to_owned()).unwrap()
}

#[test]
fn messages_are_told_apart() {
    let params = |params: Option<Raw>| params.map(|raw| Params::read(raw).unwrap()).unwrap_or_default();
    let request =
        |id: Id, raw: Option<Raw>| Message::Request(Request { id, method: "m".into(), params: params(raw) });
    let notification =
        |raw: Option<Raw>| Message::Notification(Notification { method: "m".into(), params: params(raw) });
    let response = |id: Option<Id>, outcome: Outcome| Message::Response(Response { id, outcome });
    let error = RpcError::new(-1, "no").with_data(vec![1]);
    for (text, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, request(1.into(), None)),
        (
            r#"{"jsonrpc":"2.0","id":"1","method":"m","params":{"a": 1}}"#,
            request("1".into(), Some(raw(r#"{"a": 1}"#))),
        ),
        (
            r#" {"id":-9223372036854775808,"\u006dethod":"\u006d","jsonrpc":"\u0032.0","x":[]} "#,
            request(i64::MIN.into(), None),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#, request(1.into(), None)),
        (r#"{"jsonrpc":"2.0","method":"m"}"#, notification(None)),
        (r#"{"jsonrpc":"2.0","method":"m","params":{}}"#, notification(Some(raw("{}")))),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"x":1.50}}"#,
            response(Some(1.into()), Ok(raw(r#"{"x":1.50}"#))),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, response(Some(1.into()), Ok(Raw::null()))),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, response(Some(1.into()), Ok(raw("{}")))),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[1]}}"#,
            response(Some(1.into()), Err(error.clone())),
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"result":null,"error":{"code":-1,"message":"no","data":[1]}}"#,
            response(None, Err(error.clone())),
        ),
        (r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no","data":[1]}}"#, response(None, Err(error))),
    ] {
        assert_eq!(one(text), expected, "{text}");
    }
}

#[test]
fn a_method_is_read_whether_known_or_not_and_however_it_is_written() {
    let known = Method::ALL.map(|method| (method.as_str().to_owned(), method.as_str()));
    let others =
        [(r"tools\/call", "tools/call"), ("tools/cal", "tools/cal"), ("", ""), ("한", "한"), (r"\n", "\n")];
    for (written, expected) in
        known.into_iter().chain(others.map(|(written, name)| (written.to_owned(), name)))
    {
        let Message::Request(request) = one(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{written}"}}"#))
        else {
            panic!("not a request")
        };
        assert_eq!(request.method, expected);
    }
}

#[test]
fn what_is_no_message_is_refused_under_its_id() {
    const INVALID: i64 = code::INVALID_REQUEST;
    for (text, expected_code, id) in [
        ("", code::PARSE, None),
        ("{", code::PARSE, None),
        ("NaN", code::PARSE, None),
        (r#"{"jsonrpc":"2.0","method":"m","x":"\ud800"}"#, code::PARSE, None),
        (r#"{"jsonrpc":"2.0","method":"m"} {}"#, code::PARSE, None),
        ("5", INVALID, None),
        ("\"text\"", INVALID, None),
        ("[]", INVALID, None),
        ("{}", INVALID, None),
        (r#"{"jsonrpc":"2.0","id":1}"#, INVALID, Some(1)),
        (r#"{"id":1,"method":"m"}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, INVALID, None),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, INVALID, None),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, INVALID, None),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, INVALID, None),
        (r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"m"}"#, INVALID, None),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":1,"error":"boom"}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":1,"error":[1,"boom",null]}"#, INVALID, Some(1)),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, INVALID, None),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":1,"a":2}}}"#,
            code::INVALID_PARAMS,
            Some(1),
        ),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":1,"a":2}}}]"#,
            code::INVALID_PARAMS,
            None,
        ),
    ] {
        let malformed = parse(text).unwrap_err();
        assert_eq!((malformed.error.code, malformed.id), (expected_code, id.map(Id::Integer)), "{text}");
    }
    let malformed =
        Frame::parse(&Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"x\":\"\xff\"}"))
            .unwrap_err();
    assert_eq!(malformed.error.code, code::PARSE);
    let deep = format!(r#"{{"jsonrpc":"2.0","method":"m","x":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    assert_eq!(parse(&deep).unwrap_err().error.code, code::INVALID_REQUEST);
}

#[test]
fn each_element_of_a_batch_stands_for_itself() {
    let text = r#" [{"jsonrpc":"2.0","id":1,"method":"m"}, 5, ["2.0",1,"m",null,null,null], {"jsonrpc":"2.0","id":2}]"#;
    let Ok(Frame::Batch(elements)) = parse(text) else { panic!("not a batch") };
    let seen: Vec<_> =
        elements.iter().map(|element| element.as_ref().map(|_| ()).map_err(|bad| bad.id.clone())).collect();
    assert_eq!(seen, [Ok(()), Err(None), Err(None), Err(Some(2.into()))]);
}

#[test]
fn a_batch_has_a_largest_size() {
    let batch = |count: usize| format!("[{}]", vec!["1"; count].join(","));
    assert!(matches!(parse(&batch(MAX_BATCH)), Ok(Frame::Batch(elements)) if elements.len() == MAX_BATCH));
    let malformed = parse(&batch(MAX_BATCH + 1)).unwrap_err();
    assert_eq!(malformed.error.code, code::INVALID_REQUEST);
    assert!(malformed.error.message.contains("1000"), "{malformed}");
}

#[test]
fn params_and_results_share_the_bodys_memory() {
    let body = Bytes::from_static(br#"[{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}]"#);
    let Ok(Frame::Batch(elements)) = Frame::parse(&body) else { panic!("not a batch") };
    let Ok(Message::Request(request)) = &elements[0] else { panic!("not a request") };
    let params = request.params.raw().unwrap();
    assert!(body.as_ptr_range().contains(&params.as_bytes().as_ptr()));
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![any::<i64>().prop_map(Id::Integer), any::<String>().prop_map(|text| Id::Text(text.into()))]
}

fn object() -> impl Strategy<Value = Raw> {
    prop::collection::btree_map(any::<String>(), any::<Option<f32>>(), 0..4)
        .prop_map(|members| Raw::of(&members))
}

fn message_() -> impl Strategy<Value = Message> {
    let error = (any::<i64>(), any::<String>(), prop::option::of(object()))
        .prop_map(|(code, message, data)| RpcError { code, message: message.into(), data });
    prop_oneof![
        (id(), any::<String>(), object()).prop_map(|(id, method, params)| Message::Request(Request {
            id,
            method: method.into(),
            params: Params::read(params).unwrap()
        })),
        (any::<String>(), object()).prop_map(|(method, params)| Message::Notification(Notification {
            method: method.into(),
            params: Params::read(params).unwrap()
        })),
        (id(), object())
            .prop_map(|(id, result)| Message::Response(Response { id: Some(id), outcome: Ok(result) })),
        (prop::option::of(id()), error)
            .prop_map(|(id, error)| Message::Response(Response { id, outcome: Err(error) })),
    ]
}

fn written(message: &Message, no_id: write::NoId) -> Raw {
    match message {
        Message::Request(request) => {
            write::request(&request.id, &request.method, &request.params.raw().unwrap())
        }
        Message::Notification(notification) => {
            write::notification(&notification.method, &notification.params.raw().unwrap())
        }
        Message::Response(Response { id: Some(id), outcome: Ok(result) }) => write::result(id, result),
        Message::Response(Response { id, outcome: Err(error) }) => write::error(id.as_ref(), no_id, error),
        Message::Response(_) => unreachable!("not generated"),
    }
}

proptest! {
    #[test]
    fn every_message_reads_back_what_was_written(messages in prop::collection::vec(message_(), 1..4), null in any::<bool>()) {
        let no_id = if null { write::NoId::Null } else { write::NoId::Omit };
        let texts: Vec<_> = messages.iter().map(|message| written(message, no_id)).collect();
        for (message, text) in messages.iter().zip(&texts) {
            prop_assert_eq!(Frame::parse(&text.clone().into_bytes()).unwrap(), Frame::One(message.clone()));
        }
        let batch = write::array(&texts).into_bytes();
        prop_assert_eq!(Frame::parse(&batch).unwrap(), Frame::Batch(messages.into_iter().map(Ok).collect()));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in any::<Vec<u8>>()) {
        if let Err(malformed) = Frame::parse(&bytes.into()) {
            prop_assert!(malformed.error.code < 0);
        }
    }
}
