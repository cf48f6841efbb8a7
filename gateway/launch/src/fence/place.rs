//! Where this process is in the control group file systems, and where below that it may make groups.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The two releases of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Release {
    /// A tree for each controller.
    One,
    /// One tree for all.
    Two,
}

impl Release {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::One => "cgroup v1",
            Self::Two => "cgroup v2",
        }
    }
}

/// A directory in which groups may be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) directory: PathBuf,
    pub(super) release: Release,
}

/// The places where `controller` works for a group of ours, the better one first.
pub(super) fn here(controller: &str) -> Vec<Place> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let mut places = find(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), controller);
    let delegated = places.iter().filter(|place| place.release == Release::Two).find_map(delegated_parent);
    places.extend(delegated);
    places.retain(|place| place.release == Release::One || enable(&place.directory, controller).is_some());
    places.sort_by_key(|place| place.release != Release::Two);
    places
}

/// The directory above, if it was given to us: in release 2 a group that holds processes, as ours does, cannot be
/// divided. systemd marks what it delegates, and `DelegateSubgroup=` puts the service one below.
fn delegated_parent(place: &Place) -> Option<Place> {
    let parent = place.directory.parent()?;
    let mut value = [0; 8];
    #[cfg(target_os = "linux")]
    let marked = ["trusted.delegate", "user.delegate"].iter().any(|name| {
        rustix::fs::getxattr(parent, *name, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
    });
    #[cfg(not(target_os = "linux"))]
    let marked = false;
    marked.then(|| Place { directory: parent.to_owned(), release: Release::Two })
}

/// Lets groups below `directory` use `controller`.
fn enable(directory: &Path, controller: &str) -> Option<()> {
    let has = |file: &str| {
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.split_ascii_whitespace().any(|name| name == controller)
    };
    if has("cgroup.subtree_control") {
        return Some(());
    }
    let asked = has("cgroup.controllers")
        && super::put(directory, "cgroup.subtree_control", &format!("+{controller}")).is_ok();
    asked.then_some(())
}

/// Our own group in each tree that may have `controller`, from the texts of `/proc/self/cgroup` and
/// `/proc/self/mountinfo`.
fn find(groups: &str, mounts: &str, controller: &str) -> Vec<Place> {
    let group = |release: Release| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let fits = match release {
                Release::One => controllers.split(',').any(|name| name == controller),
                Release::Two => controllers.is_empty(),
            };
            fits.then_some(path)
        })
    };
    let place = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, mounted) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let release = match after.next()? {
            "cgroup" if after.nth(1)?.split(',').any(|option| option == controller) => Release::One,
            "cgroup2" => Release::Two,
            _ => return None,
        };
        // A container may see a part of the tree only, mounted as if it were all.
        let inside = Path::new(group(release)?).strip_prefix(root).ok()?;
        Some(Place { directory: Path::new(mounted).join(inside), release })
    };
    mounts.lines().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: &str = "8:pids:/\n4:memory,hugetlb:/jobs/7\n1:name=systemd:/\n0::/user.slice\n";
    const MOUNTS: &str = "\
24 1 0:22 / /proc rw - proc proc rw
30 25 0:26 / /cg/memory rw,relatime - cgroup cgroup rw,memory,hugetlb
31 25 0:27 / /cg/pids rw,relatime shared:1 - cgroup cgroup rw,pids
32 25 0:28 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn our_group_is_found_in_each_tree() {
        let place = |directory: &str, release| Place { directory: directory.into(), release };
        let unified = place("/cg/unified/user.slice", Release::Two);
        assert_eq!(find(GROUPS, MOUNTS, "memory"), [place("/cg/memory/jobs/7", Release::One), unified]);
        let pids = find(GROUPS, MOUNTS, "pids");
        assert_eq!(pids.first(), Some(&place("/cg/pids/", Release::One)));
        assert_eq!(find(GROUPS, MOUNTS, "cpu").len(), 1, "only release 2 may have it");
        assert!(find("", MOUNTS, "memory").is_empty());
        assert!(find(GROUPS, "", "memory").is_empty());
    }

    #[test]
    fn a_tree_of_which_we_see_a_part_is_entered_there() {
        let mounts = "30 25 0:26 /jobs /cg/memory rw - cgroup cgroup rw,memory";
        assert_eq!(find(GROUPS, mounts, "memory")[0].directory, Path::new("/cg/memory/7"));
        let mounts = "30 25 0:26 /others /cg/memory rw - cgroup cgroup rw,memory";
        assert!(find(GROUPS, mounts, "memory").is_empty());
    }
}
