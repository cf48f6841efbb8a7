//! The event log of one session: the last frames of all its streams.
//!
//! Bounded by frames and by bytes; the oldest fall out, the newest stays. Numbers run through the session, so that an event's place is
//! found by subtraction.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::EventId;

/// How much one log keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

/// The last frames of a session, without gaps between them.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    frames: VecDeque<(EventId, Bytes)>,
    /// Of all frames together.
    bytes: usize,
    /// The number of the newest event.
    newest: u64,
    /// The newest event that fell out. Still a place to go on from: nothing after it is missing.
    fallen: Option<EventId>,
}

impl EventLog {
    pub(super) fn append(&mut self, stream: u64, frame: Bytes, bounds: Bounds) -> EventId {
        self.newest += 1;
        let id = EventId { stream, sequence: self.newest };
        self.bytes += frame.len();
        self.frames.push_back((id, frame));
        // The newest stays whatever its size: a client that was sent away comes back for it.
        while self.frames.len() > 1 && (self.frames.len() > bounds.frames || self.bytes > bounds.bytes) {
            let Some((id, frame)) = self.frames.pop_front() else { break };
            self.bytes -= frame.len();
            self.fallen = Some(id);
        }
        id
    }

    /// The frames of `after`'s stream that came after it; `None` when some may be missing or `after` never was.
    pub(super) fn replay(&self, after: EventId) -> Option<Vec<(EventId, Bytes)>> {
        let rest = if self.fallen == Some(after) { 0 } else { self.place(after)? + 1 };
        let frames = self.frames.range(rest..).filter(|(id, _)| id.stream == after.stream);
        Some(frames.cloned().collect())
    }

    fn place(&self, event: EventId) -> Option<usize> {
        let (oldest, _) = self.frames.front()?;
        let place = usize::try_from(event.sequence.checked_sub(oldest.sequence)?).ok()?;
        self.frames.get(place).filter(|(id, _)| *id == event).map(|_| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Bounds = Bounds { frames: 100, bytes: 1 << 20 };

    fn log(bounds: Bounds, streams: &[u64]) -> (EventLog, Vec<EventId>) {
        let mut log = EventLog::default();
        let ids = streams
            .iter()
            .enumerate()
            .map(|(n, stream)| log.append(*stream, Bytes::from(format!("frame{n:05}")), bounds))
            .collect();
        (log, ids)
    }

    fn numbers(replayed: Option<Vec<(EventId, Bytes)>>) -> Option<Vec<u64>> {
        replayed.map(|frames| frames.iter().map(|(id, _)| id.sequence).collect())
    }

    #[test]
    fn replay_gives_the_rest_of_the_same_stream_only() {
        let (log, ids) = log(WIDE, &[0, 1, 0, 1, 2, 1]);
        assert_eq!(numbers(log.replay(ids[0])), Some(vec![3]));
        assert_eq!(numbers(log.replay(ids[1])), Some(vec![4, 6]));
        assert_eq!(log.replay(ids[1]).unwrap()[0].1, "frame00003");
        assert_eq!(numbers(log.replay(ids[5])), Some(vec![]), "nothing came after the newest");
    }

    #[test]
    fn unknown_events_have_no_replay() {
        let (log, ids) = log(WIDE, &[0, 1]);
        for (stream, sequence) in [(0, 0), (0, 3), (1, 1), (0, u64::MAX)] {
            assert_eq!(log.replay(EventId { stream, sequence }), None, "{stream}-{sequence}");
        }
        assert_eq!(EventLog::default().replay(ids[0]), None);
    }

    #[test]
    fn the_oldest_fall_out_by_count() {
        let (log, ids) = log(Bounds { frames: 3, ..WIDE }, &[1; 8]);
        assert_eq!(log.frames.len(), 3);
        assert_eq!(log.replay(ids[3]), None, "the event after it is gone");
        assert_eq!(numbers(log.replay(ids[4])), Some(vec![6, 7, 8]), "it is gone, but nothing after it");
        assert_eq!(numbers(log.replay(ids[6])), Some(vec![8]));
    }

    #[test]
    fn the_oldest_fall_out_by_bytes_and_bytes_are_given_back() {
        let (mut log, _) = log(Bounds { bytes: 35, ..WIDE }, &[1; 50]);
        assert_eq!((log.frames.len(), log.bytes), (3, 30));
        let huge = log.append(1, Bytes::from(vec![0; 36]), Bounds { bytes: 35, ..WIDE });
        assert_eq!((log.frames.len(), log.bytes), (1, 36), "the newest is kept, however large");
        assert_eq!(numbers(log.replay(huge)), Some(vec![]));
        log.append(1, Bytes::from_static(b"next"), Bounds { bytes: 35, ..WIDE });
        assert_eq!((log.frames.len(), log.bytes), (1, 4));
        assert_eq!(numbers(log.replay(huge)), Some(vec![52]), "it is gone, but nothing after it");
    }
}
