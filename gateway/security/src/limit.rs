//! What calls are counted against: the caller's address, the caller, the caller's use of a tool.
//!
//! Only names the counters; the counting is [`State::enter`](moongate_storage::State::enter)'s, together with the
//! session's check, in one step.

use std::{hash::Hash, net::IpAddr, num::NonZeroU32, sync::LazyLock};

use moongate_core::{Principal, hash::Hasher};
use moongate_storage::{Quota, Rate};

use crate::address::fold;

/// A failed token counts like so many requests: guessing is the one thing an address is slowed down for early.
pub const FAILED_TOKEN_COST: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");

/// Keyed at random, so that nobody can find two callers whose counters collide.
static HASHER: LazyLock<Hasher> = LazyLock::new(Hasher::new);

/// What a counter is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateKind {
    /// One client address, or one IPv6 network.
    Address,
    /// One principal.
    Principal,
    /// One principal's use of one tool.
    Tool,
}

/// The key of a counter. Differs from process to process.
pub fn rate_key<K: Hash + ?Sized>(kind: RateKind, about: &K) -> u64 {
    HASHER.hash_one((kind, about))
}

/// The counter of an address.
pub fn address_rate(address: IpAddr, quota: Quota) -> Rate {
    Rate { key: rate_key(RateKind::Address, &fold(address)), quota, cost: NonZeroU32::MIN }
}

/// The counter of an address, for a token that was wrong. Costs no more than the whole quota, which would never pass.
pub fn failed_token_rate(address: IpAddr, quota: Quota) -> Rate {
    Rate { cost: FAILED_TOKEN_COST.min(quota.count), ..address_rate(address, quota) }
}

/// The counter of a principal.
pub fn principal_rate(principal: &Principal, quota: Quota) -> Rate {
    Rate { key: rate_key(RateKind::Principal, principal), quota, cost: NonZeroU32::MIN }
}

/// The counter of a principal's use of a tool, by the tool's canonical name.
pub fn tool_rate(principal: &Principal, canonical: &str, quota: Quota) -> Rate {
    Rate { key: rate_key(RateKind::Tool, &(principal, canonical)), quota, cost: NonZeroU32::MIN }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use super::*;

    fn quota(count: u32) -> Quota {
        Quota { count: NonZeroU32::new(count).unwrap(), per: Duration::from_mins(1) }
    }

    #[test]
    fn each_counter_has_its_own_key() {
        let alice = Principal::issued("alice");
        let bob = Principal::issued("bob");
        let address = |text: &str| address_rate(text.parse().unwrap(), quota(1)).key;
        let keys = [
            address("203.0.113.7"),
            address("203.0.113.8"),
            address("2001:db8::1"),
            principal_rate(&alice, quota(1)).key,
            principal_rate(&bob, quota(1)).key,
            tool_rate(&alice, "add_memo", quota(1)).key,
            tool_rate(&alice, "get_memo", quota(1)).key,
            tool_rate(&bob, "add_memo", quota(1)).key,
            rate_key(RateKind::Tool, "add_memo"),
            rate_key(RateKind::Principal, "add_memo"),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"), "one network of 64 bits");
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"), "another network");
        assert_eq!(address("203.0.113.7"), address("::ffff:203.0.113.7"), "one host");
        assert_eq!(tool_rate(&alice, "add_memo", quota(1)).key, tool_rate(&alice, "add_memo", quota(9)).key);
    }

    #[test]
    fn a_failed_token_costs_ten_but_never_more_than_the_quota() {
        let address = IpAddr::from([203, 0, 113, 7]);
        assert_eq!(failed_token_rate(address, quota(600)).cost.get(), 10);
        assert_eq!(failed_token_rate(address, quota(4)).cost.get(), 4);
        assert_eq!(failed_token_rate(address, quota(600)).key, address_rate(address, quota(600)).key);
    }
}
