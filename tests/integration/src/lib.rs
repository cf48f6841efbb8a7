//! Tests over the wire, against the real binary.
