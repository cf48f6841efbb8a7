//! Arbitrary objects under edits: what is dropped is gone, what stays is untouched, and dropping undoes appending.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moongate_wire::{
    Raw,
    edit::{self, Edit},
    write,
};

const ADDED: &str = "__added";

fuzz_target!(|data: &[u8]| {
    let Ok(object) = Raw::from_text(data.to_vec()) else { return };
    let members = object.members();
    if !object.is_object() {
        assert_eq!(edit::members(&object, |_, _| Edit::Drop), object);
        return;
    }

    let mut seen = 0..;
    let every_other = |_: &str, _: &Raw| {
        if seen.next().is_some_and(|index| index % 2 == 0) { Edit::Keep } else { Edit::Drop }
    };
    let halved = edit::members(&object, every_other);
    assert!(halved.members().iter().eq(members.iter().step_by(2)), "{}", halved.as_str());
    let mut seen = 0..;
    let removed = edit::remove(&object, |_, _| seen.next().is_some_and(|index| index % 2 == 1));
    assert_eq!(removed, halved);

    let emptied = edit::members(&object, |_, _| Edit::Drop);
    assert!(is_json(&emptied) && emptied.members().is_empty());

    let nulled = edit::members(&object, |_, _| Edit::Replace(Raw::null()));
    assert!(nulled.members().iter().map(|(name, _)| name).eq(members.iter().map(|(name, _)| name)));

    if members.iter().all(|(name, _)| name != ADDED) {
        let appended = edit::append(&object, [(ADDED, "\"x\n")]);
        assert!(is_json(&appended));
        let dropped = edit::members(&appended, |name, _| if name == ADDED { Edit::Drop } else { Edit::Keep });
        assert_eq!(dropped.as_str(), object.as_str());
        let prepended = write::with_members(&object, &[(ADDED, Raw::null())]);
        assert_eq!(prepended.members().len(), members.len() + 1);
    }
});

fn is_json(raw: &Raw) -> bool {
    Raw::from_text(raw.clone().into_bytes()).is_ok()
}
