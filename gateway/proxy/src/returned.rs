//! What a backend's answer goes through on its way back: the client's version, and what a missing resource is called in it.

use moongate_core::{CallError, Kind, Raw, Reply, RpcError};
use moongate_wire::{Method, Version, code};

use crate::{downgrade::content, member::Member};

/// The reply of `member` for a client of `version`; `wraps` says whether the tool's output is listed wrapped.
pub(crate) fn reply(reply: Reply, method: Method, member: &Member, version: Version, wraps: bool) -> Reply {
    // What this process writes is an object, which older clients have always been given beside the text.
    let fits = !member.is_upstream && version >= Version::V2025_06_18;
    if fits && !wraps {
        return reply;
    }
    let is_foreign = method == Method::CallTool && (member.is_upstream || wraps);
    let result = if is_foreign { content::structured(reply.result, version, wraps) } else { reply.result };
    Reply { result: content::blocks(result, method, version), ..reply }
}

/// A backend's error as this gateway's own. `uri` is the resource that was asked for, if it was one.
pub(crate) fn error(mut error: CallError, uri: Option<&str>) -> CallError {
    let Kind::Rpc { error: said } = &error.kind else { return error };
    if let Some(uri) = uri.filter(|uri| is_missing(said, uri)) {
        error.public = said.message.clone();
        error.kind = Kind::UnknownResource { uri: uri.into() };
    }
    error
}

/// Whether an error says, in the words of either era, that there is no such resource.
fn is_missing(error: &RpcError, uri: &str) -> bool {
    let named = || error.data.as_ref().and_then(|data: &Raw| data.member("uri"));
    match error.code {
        code::RESOURCE_NOT_FOUND => true,
        code::INVALID_PARAMS => named().is_some_and(|named| named.is_text(uri)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moongate_core::Offer;
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::Fake;

    #[test]
    fn what_this_process_says_stays_as_it_is_but_for_blocks_nobody_knew_yet() {
        let backend = || Arc::new(Fake::new(Offer::default()));
        let (own, other) = (Member::builtin("own", backend()), Member::upstream("other", backend()));
        let link = json!({"type": "resource_link", "uri": "x://a"});
        let text = json!({"type": "text", "text": "x://a"});
        for (member, version, structured, block) in [
            (&own, Version::V2025_03_26, Some(json!({})), &text),
            (&other, Version::V2025_03_26, None, &text),
            (&own, Version::V2025_11_25, Some(json!({})), &link),
            (&other, Version::V2025_11_25, Some(json!({})), &link),
        ] {
            let said = Raw::of(&json!({"content": [link], "structuredContent": {}}));
            let given = reply(said.into(), Method::CallTool, member, version, false).result;
            let given: Value = given.parse().unwrap();
            assert_eq!(given.get("structuredContent").cloned(), structured, "{member:?} {version}");
            assert_eq!(&given["content"][0], block, "{member:?} {version}");
        }
    }

    fn returned(said: RpcError, uri: Option<&str>) -> Kind {
        error(CallError::upstream(Kind::Rpc { error: said }, "m"), uri).kind
    }

    #[test]
    fn a_missing_resource_is_known_in_the_words_of_both_eras() {
        let missing = Kind::UnknownResource { uri: "x://a".into() };
        let named = |uri: &str| RpcError::new(-32602, "m").with_data(json!({ "uri": uri }));
        assert_eq!(returned(RpcError::new(-32002, "m"), Some("x://a")), missing);
        assert_eq!(returned(named("x://a"), Some("x://a")), missing);
        for (said, uri) in [
            (named("x://b"), Some("x://a")),
            (RpcError::new(-32602, "m"), Some("x://a")),
            (RpcError::new(-32002, "m"), None),
            (RpcError::new(-32000, "m"), Some("x://a")),
        ] {
            assert_eq!(returned(said.clone(), uri), Kind::Rpc { error: said });
        }
    }
}
