//! Seccomp: which system calls a process may make.
//!
//! A list of what is refused and not of what is allowed: commands are anything, and one that stops at a harmless call its
//! author never heard of helps nobody. What is refused answers `EPERM`, as if a user had no right to it.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

use super::Network;

/// Whether a file's mode, owner, times and attributes may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metadata {
    /// Something else sees to which files.
    Allowed,
    /// Of no file, because nothing else does.
    Refused,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Modes, owners, times and attributes of files: landlock does not look at their paths.
const METADATA: [c_long; 14] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // Newer than the library that names the others; the numbers are the same on every machine.
    463, // setxattrat
    466, // removexattrat
    469, // file_setattr
];

/// The same for machines that are old enough to have them.
#[cfg(target_arch = "x86_64")]
const OLD_METADATA: [c_long; 6] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_METADATA: [c_long; 0] = [];

/// Ways around the checks above, or into other processes.
const WAYS_AROUND: [c_long; 28] = [
    // What it is asked to do is not seen by any filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    // Who listens without an address gets one from the kernel, and landlock is asked about addresses only; nor is every
    // stream over IP one of TCP to it.
    libc::SYS_listen,
    // Memory and messages that are shared by their number or name, in no directory. Whoever guesses the number needs no
    // call that asks for it.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// What is for administrators, who ask elsewhere.
const ADMINISTRATION: [c_long; 32] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_fanotify_init,
];

/// What takes something from a process, or gives it, that is named by their first argument. Landlock looks at none of
/// them, and the supervisor is a process of the same user. 0 is whoever calls.
const TOWARDS_OTHERS: [c_long; 7] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// The same with the process as the second argument and what is meant by it as the first, and the value of that for
/// every process of a user.
const TOWARDS_MANY: [(c_long, u64); 2] = [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)];

/// New namespaces, in which a user is an administrator.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Puts words into the mouth of whoever sits at a terminal.
const TERMINAL_INPUT: [u32; 2] = [0x5412, 0x541c];

/// Restricts this process.
pub(super) fn restrict(network: Network, metadata: Metadata) -> Result<(), String> {
    let arch =
        std::env::consts::ARCH.try_into().map_err(|_| "it is not known on this processor".to_owned())?;
    let programs = programs(network, metadata, arch).map_err(|error| error.to_string())?;
    programs.iter().try_for_each(|program| apply_filter(program)).map_err(|error| error.to_string())
}

fn programs(network: Network, metadata: Metadata, arch: TargetArch) -> Result<Vec<BpfProgram>, BackendError> {
    let program = |rules, errno: libc::c_int| {
        let refused = SeccompAction::Errno(errno.unsigned_abs());
        SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()
    };
    // Whoever is told that this does not exist takes `clone`, whose flags can be seen.
    let absent = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let mut programs =
        vec![program(refused(network, metadata)?, libc::EPERM)?, program(absent, libc::ENOSYS)?];
    if cfg!(target_arch = "x86_64") {
        programs.push(second_numbering());
    }
    Ok(programs)
}

fn refused(network: Network, metadata: Metadata) -> Result<Rules, BackendError> {
    let mut rules: Rules =
        WAYS_AROUND.into_iter().chain(ADMINISTRATION).map(|call| (call, Vec::new())).collect();
    if metadata == Metadata::Refused {
        rules.extend(METADATA.into_iter().chain(OLD_METADATA).map(|call| (call, Vec::new())));
        // With a path. Without, the file is open, and whether it may be opened was decided by its path.
        let by_path = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
        rules.insert(libc::SYS_utimensat, vec![SeccompRule::new(vec![by_path])?]);
    }
    for call in TOWARDS_OTHERS {
        rules.insert(call, vec![SeccompRule::new(vec![argument(0, SeccompCmpOp::Ne, 0)?])?]);
    }
    for (call, user) in TOWARDS_MANY {
        let another = SeccompRule::new(vec![argument(1, SeccompCmpOp::Ne, 0)?])?;
        let all = SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, user)?])?;
        rules.insert(call, vec![another, all]);
    }
    let namespaces = NAMESPACES.map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        SeccompRule::new(vec![argument(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, namespaces.into_iter().collect::<Result<_, _>>()?);
    let typing =
        TERMINAL_INPUT.map(|request| SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, request.into())?]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socketpair, vec![other_than(&[libc::AF_UNIX])?]);
    let sockets = match network {
        Network::None => Vec::new(),
        // The third tells programs which addresses this machine has. Unix sockets lead to whatever listens here.
        Network::Outbound => vec![other_than(&[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK])?],
    };
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

/// Fits when the first argument is none of these.
fn other_than(families: &[libc::c_int]) -> Result<SeccompRule, BackendError> {
    let not = |family: &libc::c_int| argument(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()));
    SeccompRule::new(families.iter().map(not).collect::<Result<_, _>>()?)
}

/// The kernel looks at half of such an argument, and so does this.
fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
}

/// Refuses the second set of numbers (x32) that some kernels have for the same calls. Those of other processors, 32 bits
/// included, end the process: the compiled filters do that.
fn second_numbering() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const FIRST: u32 = 0x4000_0000;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let step = |code, (jt, jf), k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD_NUMBER, (0, 0), 0),
        step(IF_AT_LEAST, (0, 1), FIRST),
        step(RETURN, (0, 0), refuse),
        step(RETURN, (0, 0), libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_can_be_compiled() {
        let arch = std::env::consts::ARCH.try_into().unwrap();
        for (network, metadata) in
            [(Network::None, Metadata::Refused), (Network::Outbound, Metadata::Allowed)]
        {
            let programs = programs(network, metadata, arch).unwrap();
            assert!(programs.iter().all(|program| (1..4096).contains(&program.len())));
        }
    }

    #[test]
    fn no_call_is_listed_twice() {
        let all = [&METADATA[..], &OLD_METADATA, &WAYS_AROUND, &ADMINISTRATION, &TOWARDS_OTHERS].concat();
        let once: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(once.len(), all.len());
    }
}
