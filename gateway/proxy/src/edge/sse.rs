//! The text of server-sent events: one message per event, one line per message.

use bytes::{BufMut, Bytes, BytesMut};
use moongate_storage::EventId;
use moongate_wire::Raw;

/// What keeps an idle stream open through proxies.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// One message.
pub fn event(id: Option<EventId>, message: &Raw) -> Bytes {
    frame(id, message.as_bytes())
}

/// One message, from its bytes.
pub fn frame(id: Option<EventId>, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 64);
    out.put_slice(b"event: message\n");
    if let Some(id) = id {
        out.put_slice(format!("id: {id}\n").as_bytes());
    }
    out.put_slice(b"data: ");
    // JSON keeps its meaning when the line breaks between its tokens become blanks; inside strings there are none.
    out.extend(message.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    out.put_slice(b"\n\n");
    out.freeze()
}

/// The first event of a 2025-11-25 stream: an id to come back to, and when.
pub fn priming(id: EventId, retry_ms: u32) -> Bytes {
    Bytes::from(format!("id: {id}\nretry: {retry_ms}\ndata: \n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pretty_printed_message_becomes_one_line() {
        let message = Raw::from_text("{\n  \"a\": \"x\\ny\"\r\n}").unwrap();
        let id = EventId { stream: 3, sequence: 9 };
        let text = event(Some(id), &message);
        assert_eq!(&text[..], b"event: message\nid: 3-9\ndata: {   \"a\": \"x\\ny\"  }\n\n");
    }
}
