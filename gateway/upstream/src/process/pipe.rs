//! The reader and the writer of a process's pipes.
//!
//! The reader takes lines apart into messages and hands each to whom it belongs, waiting for nobody. The writer writes
//! what is queued, and stops alone when the process does not read. Neither decides what the end of a pipe means.

use std::{io, sync::Arc};

use bytes::Bytes;
use memchr::memchr2;
use moongate_wire::{Frame, Id, Malformed, Message, Notification, Raw, Response, RpcError, code, write};
use serde::{Deserialize, de::IgnoredAny};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};
use tracing::debug;

use super::{
    lines::{Line, Lines},
    pending::{Delivery, Pending},
};
use crate::transport::{Answer, Event, Fault, Inbound};

/// How many messages wait to be written. Whoever has one more waits, or gives up at its deadline.
pub(super) const QUEUE: usize = 64;
/// So much is written at once, where there is so much.
const BATCH: usize = 64 << 10;
/// A buffer that has grown beyond this is not kept.
const KEPT: usize = 1 << 20;

/// So many lines that are no messages, one after the other, and the process speaks something else.
const MOST_GARBAGE_LINES: u64 = 100;
/// The same in bytes.
const MOST_GARBAGE_BYTES: u64 = 1 << 20;

const PROGRESS: &str = "notifications/progress";
const CANCELLED: &str = "notifications/cancelled";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A message that waits to be written.
#[derive(Debug)]
pub(super) enum Item {
    /// Of an exchange, which may be given up before its turn.
    Request { id: i64, text: Raw },
    /// Of none.
    Other(Raw),
}

/// Writes what is queued until the pipe breaks.
///
/// # Cancel safety
/// Not cancel safe: a message may be written in part.
pub(super) async fn write(
    mut stdin: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Item>,
    pending: &Pending,
) -> io::Result<()> {
    let (mut buffer, mut begun) = (Vec::new(), Vec::new());
    let mut first = None;
    loop {
        // After their requests, which were begun before they were given up; and before what is asked next.
        for id in pending.take_given_up() {
            push(&mut buffer, &cancelled(id));
        }
        while buffer.len() < BATCH
            && let Some(item) = first.take().or_else(|| queue.try_recv().ok())
        {
            push_item(&mut buffer, &mut begun, &item, pending);
        }
        if buffer.is_empty() {
            tokio::select! {
                item = queue.recv() => match item {
                    Some(item) => first = Some(item),
                    None => return Ok(()),
                },
                () = pending.given_up() => {}
            }
            continue;
        }
        let mut written = 0;
        while let Some(rest) = buffer.get(written..).filter(|rest| !rest.is_empty()) {
            match stdin.write(rest).await {
                Ok(count) if count > 0 => written += count,
                broken => {
                    // A line without its end is no message: nobody has seen these, and they may be sent again.
                    for (id, _) in begun.iter().filter(|(_, end)| *end > written) {
                        pending.take_back(*id);
                    }
                    return broken.and(Err(io::ErrorKind::WriteZero.into()));
                }
            }
        }
        begun.clear();
        buffer.clear();
        buffer.shrink_to(KEPT);
    }
}

/// Appends what is still wanted. `begun` gets the requests and where they end.
fn push_item(buffer: &mut Vec<u8>, begun: &mut Vec<(i64, usize)>, item: &Item, pending: &Pending) {
    match item {
        Item::Request { id, text } if pending.begin(*id) => {
            push(buffer, text);
            begun.push((*id, buffer.len()));
        }
        Item::Request { .. } => {}
        Item::Other(text) => push(buffer, text),
    }
}

/// Appends a message as a line. Line ends in JSON are blanks between its parts, and may come from whoever wrote it.
fn push(buffer: &mut Vec<u8>, message: &Raw) {
    let start = buffer.len();
    buffer.extend_from_slice(message.as_bytes());
    if memchr2(b'\n', b'\r', message.as_bytes()).is_some() {
        let line = buffer.get_mut(start..).unwrap_or_default();
        line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    buffer.push(b'\n');
}

fn cancelled(id: i64) -> Raw {
    write::notification(CANCELLED, &serde_json::json!({"requestId": id}).into())
}

/// Hands each message of a process to whom it belongs.
pub(super) struct Reader {
    pub(super) name: Arc<str>,
    pub(super) pending: Arc<Pending>,
    pub(super) inbound: Arc<dyn Inbound>,
    /// For answers to what nobody can take.
    pub(super) queue: mpsc::Sender<Item>,
    pub(super) garbage: Garbage,
}

/// What a process writes that is no message.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// Since the last message.
    lines: u64,
    bytes: u64,
}

impl Garbage {
    /// Counts a line. True when it was one too many.
    fn add(&mut self, line: &[u8]) -> bool {
        self.lines += 1;
        self.bytes += line.len() as u64;
        self.lines >= MOST_GARBAGE_LINES || self.bytes >= MOST_GARBAGE_BYTES
    }
}

impl Reader {
    /// Reads until the pipe ends, and says why it is of no use any more.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing that anybody waits for but the rest.
    pub(super) async fn read(mut self, stdout: impl AsyncRead + Unpin, longest: usize) -> Fault {
        let mut lines = Lines::new(stdout, longest);
        loop {
            match lines.next().await {
                Line::Whole(line) => {
                    if let Err(fault) = self.hear(&line) {
                        return fault;
                    }
                }
                Line::TooLong => {
                    return Fault::Garbled(format!("a message was longer than {longest} bytes").into());
                }
                Line::End => return Fault::Lost("the process closed its standard output".into()),
            }
        }
    }

    fn hear(&mut self, line: &Bytes) -> Result<(), Fault> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match Frame::parse(line) {
            Ok(Frame::One(message)) => self.take(message),
            Ok(Frame::Batch(batch)) => {
                for element in batch {
                    match element {
                        Ok(message) => self.take(message),
                        Err(malformed) => self.refuse(line, &malformed)?,
                    }
                }
            }
            Err(malformed) => {
                // What is meant as an answer must not leave its exchange waiting.
                if let Some(id) = answers(line).filter(|id| self.pending.has(*id)) {
                    let text = format!("the answer is not valid: {}", malformed.error.message);
                    self.pending.end(Some(id), Event::Lost(Fault::Garbled(text.into())));
                } else {
                    self.refuse(line, &malformed)?;
                }
            }
        }
        Ok(())
    }

    /// Counts a line that is no message: servers print banners. One that prints nothing else is no server.
    fn refuse(&mut self, line: &[u8], malformed: &Malformed) -> Result<(), Fault> {
        let too_much = self.garbage.add(line);
        self.pending.count_garbage();
        // Each time twice as rarely.
        if self.garbage.lines.is_power_of_two() {
            debug!(upstream = %self.name, lines = self.garbage.lines, problem = %malformed.error.message, "standard output is not MCP");
        }
        let Garbage { lines, bytes } = self.garbage;
        if too_much {
            let text =
                format!("the process does not speak MCP: {lines} lines ({bytes} bytes) without a message");
            return Err(Fault::Garbled(text.into()));
        }
        Ok(())
    }

    fn take(&mut self, message: Message) {
        self.garbage = Garbage::default();
        let message = match message {
            Message::Response(Response { id, outcome }) => {
                let id = id.and_then(|id| if let Id::Integer(id) = id { Some(id) } else { None });
                return self.pending.end(id, Event::Answer(Answer { outcome, status: None }));
            }
            message => message,
        };
        let delivery = match owner(&message) {
            Some(Owner::Of(id)) => self.pending.deliver(id, message),
            Some(Owner::Ends(id)) => self.pending.end_listening(id, message),
            None => Delivery::Unknown(message),
        };
        match delivery {
            Delivery::Taken | Delivery::Full(Message::Notification(_) | Message::Response(_)) => {}
            Delivery::Full(Message::Request(request)) => {
                let error = RpcError::new(code::INTERNAL, "Internal error: too much is asked at once");
                let answer = write::error(Some(&request.id), write::NoId::Omit, &error);
                // A process that does not read its answers does not get this one either.
                let _full = self.queue.try_send(Item::Other(answer)).is_err();
            }
            Delivery::Unknown(message) => self.inbound.hear(message),
        }
    }
}

/// The exchange a message names.
enum Owner {
    /// It belongs to this one.
    Of(i64),
    /// It ends this one, if that listens.
    Ends(i64),
}

/// Which exchange a message is about, if it says so.
fn owner(message: &Message) -> Option<Owner> {
    let params = message.params()?;
    let number = |value: Option<Raw>| value?.parse::<i64>().ok();
    let member = |name: &str| number(params.raw()?.member(name));
    if let Message::Notification(Notification { method, .. }) = message {
        match method.as_ref() {
            PROGRESS => return member("progressToken").map(Owner::Of),
            CANCELLED => return member("requestId").map(Owner::Ends),
            _ => {}
        }
    }
    number(params.meta().raw()?.member(SUBSCRIPTION)).map(Owner::Of)
}

/// The id of the request that a line answers which is no valid message.
fn answers(line: &[u8]) -> Option<i64> {
    #[derive(Deserialize)]
    struct Envelope {
        id: i64,
        method: Option<IgnoredAny>,
    }
    let object = line.trim_ascii_start().starts_with(b"{");
    let envelope: Envelope = object.then(|| serde_json::from_slice(line).ok())??;
    envelope.method.is_none().then_some(envelope.id)
}

#[cfg(test)]
mod tests;
