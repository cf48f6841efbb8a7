//! Tables of lines and what becomes of them, without a process.

use std::sync::Mutex;

use super::*;
use crate::transport::Event;

/// Keeps what it hears.
#[derive(Default)]
struct Ear(Mutex<Vec<Message>>);

impl Inbound for Ear {
    fn hear(&self, message: Message) {
        self.0.lock().unwrap().push(message);
    }
}

impl Ear {
    fn heard(&self) -> Vec<String> {
        let name = |message: Message| match message {
            Message::Request(request) => request.method.into_owned(),
            Message::Notification(note) => note.method.into_owned(),
            Message::Response(_) => "a response".to_owned(),
        };
        self.0.lock().unwrap().drain(..).map(name).collect()
    }
}

struct Set {
    reader: Reader,
    ear: Arc<Ear>,
    pending: Arc<Pending>,
    queued: mpsc::Receiver<Item>,
}

fn set() -> Set {
    let (ear, pending) = (Arc::new(Ear::default()), Arc::new(Pending::default()));
    let (queue, queued) = mpsc::channel(QUEUE);
    let inbound: Arc<dyn Inbound> = Arc::<Ear>::clone(&ear);
    let reader = Reader {
        name: "x".into(),
        pending: Arc::clone(&pending),
        inbound,
        queue,
        garbage: Garbage::default(),
    };
    Set { reader, ear, pending, queued }
}

impl Set {
    fn hear(&mut self, line: &str) -> Result<(), Fault> {
        self.reader.hear(&Bytes::copy_from_slice(line.as_bytes()))
    }
}

#[tokio::test]
async fn each_message_goes_to_whom_it_belongs() {
    let mut set = set();
    let mut call = set.pending.open(1, "tools/call").unwrap();
    let mut listen = set.pending.open(2, "subscriptions/listen").unwrap();
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
        r#"[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":1,"result":{}},7]"#,
    ] {
        set.hear(line).unwrap();
    }
    let expected = [
        "notifications/progress",
        "notifications/progress",
        "notifications/cancelled",
        "sampling/createMessage",
        "notifications/message",
    ];
    assert_eq!(set.ear.heard(), expected);
    assert!(matches!(call.next().await, Event::Message(_)));
    assert!(matches!(call.next().await, Event::Answer(_)));
    assert!(matches!(listen.next().await, Event::Message(_)));
    assert!(matches!(listen.next().await, Event::Lost(Fault::Lost(_))));
    assert_eq!(set.reader.garbage.lines, 1, "the number in the batch");
}

#[tokio::test]
async fn an_answer_that_is_not_valid_ends_its_exchange() {
    for line in [
        r#"{"id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
    ] {
        let mut set = set();
        let mut call = set.pending.open(1, "tools/call").unwrap();
        set.hear(line).unwrap();
        assert!(matches!(call.next().await, Event::Lost(Fault::Garbled(_))), "{line}");
    }
    let mut set = set();
    let _call = set.pending.open(1, "tools/call").unwrap();
    set.hear(r#"{"id":1,"method":"ping"}"#).unwrap();
    set.hear(r#"{"id":2,"result":{}}"#).unwrap();
    assert!(set.pending.has(1), "a request of the server's may have the same id");
    assert_eq!(set.reader.garbage.lines, 2);
}

#[test]
fn garbage_is_borne_until_there_is_nothing_else() {
    let mut set = set();
    for round in 0..3 {
        for _ in 1..MOST_GARBAGE_LINES {
            set.hear("Server listening on stdio").unwrap();
            set.hear(" \r").unwrap();
        }
        set.hear(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#).unwrap();
        assert_eq!(set.ear.heard().len(), 1, "{round}");
    }
    for _ in 1..MOST_GARBAGE_LINES {
        set.hear("x").unwrap();
    }
    assert!(matches!(set.hear("x"), Err(Fault::Garbled(_))));
    set.reader.garbage = Garbage::default();
    let long = "x".repeat(600 << 10);
    set.hear(&long).unwrap();
    assert!(matches!(set.hear(&long), Err(Fault::Garbled(_))));
}

#[tokio::test]
async fn what_an_exchange_cannot_take_is_answered_when_it_is_a_question() {
    let mut set = set();
    let _listen = set.pending.open(2, "subscriptions/listen").unwrap();
    let meta = r#""params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}"#;
    for _ in 0..100 {
        set.hear(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/x",{meta}}}"#)).unwrap();
    }
    assert!(set.queued.try_recv().is_err());
    set.hear(&format!(r#"{{"jsonrpc":"2.0","id":"q","method":"roots/list",{meta}}}"#)).unwrap();
    let Ok(Item::Other(answer)) = set.queued.try_recv() else { panic!("an answer") };
    assert!(answer.as_str().starts_with(r#"{"jsonrpc":"2.0","id":"q","error":{"code":-32603,"#));
    assert!(set.ear.heard().is_empty());
}

#[tokio::test]
async fn what_is_written_has_a_line_each_and_skips_what_was_given_up() {
    let Set { reader, pending, queued, .. } = set();
    let request = |id| Item::Request { id, text: Raw::from_text("{\"a\":\r\n1}").unwrap() };
    let first = pending.open(1, "tools/call").unwrap();
    drop(pending.open(2, "tools/call").unwrap());
    for item in [request(1), request(2), Item::Other(Raw::of("other"))] {
        reader.queue.send(item).await.unwrap();
    }
    let (mut here, there) = tokio::io::duplex(1 << 10);
    let reading = async move {
        let mut lines = Lines::new(&mut here, 100);
        let mut found = Vec::new();
        for _ in 0..2 {
            found.push(lines.next().await);
        }
        drop(first);
        found.push(lines.next().await);
        found
    };
    let found = tokio::select! {
        found = reading => found,
        ended = write(there, queued, &pending) => panic!("{ended:?}"),
    };
    let line = |text: &'static str| Line::Whole(Bytes::from_static(text.as_bytes()));
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(found, [line("{\"a\":  1}"), line("\"other\""), line(cancelled)]);
}

#[tokio::test]
async fn what_did_not_fit_into_a_pipe_that_broke_can_be_sent_again() {
    let Set { pending, .. } = set();
    let text = Raw::of(&serde_json::json!({"jsonrpc": "2.0", "method": "tools/call"}));
    let (queue, queued) = mpsc::channel(QUEUE);
    let mut tickets = Vec::new();
    for id in [1, 2, 3] {
        tickets.push(pending.open(id, "tools/call").unwrap());
        queue.try_send(Item::Request { id, text: text.clone() }).unwrap();
    }
    // Room for the first line and half of the second; then nobody reads any more.
    let (stdin, reader) = tokio::io::duplex(text.as_str().len() * 3 / 2);
    let breaking = async {
        tokio::task::yield_now().await;
        drop(reader);
    };
    let (broken, ()) = tokio::join!(write(stdin, queued, &pending), breaking);
    assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    pending.close(&Fault::Lost("it died".into()));
    let mut told = Vec::new();
    for ticket in &mut tickets {
        let Event::Lost(fault) = ticket.next().await else { panic!("there was no answer") };
        told.push(fault);
    }
    let unreached = || Fault::Unreached("it died".into());
    assert_eq!(told, [Fault::Lost("it died".into()), unreached(), unreached()]);
}
