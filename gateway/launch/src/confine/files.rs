//! Landlock: which paths a process may use, TCP, and whom it may signal.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};

use super::{Confinement, Network};

/// What is asked for: with 6 came the last thing that matters here, signals and abstract sockets.
const WANTED: ABI = ABI::V6;

/// Programs, libraries and what belongs to them.
const SYSTEM: [&str; 8] =
    ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc/alternatives"];

/// What programs want to know about the machine. Not all of `/etc`: services keep their secrets there.
const SETTINGS: [&str; 33] = [
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki",
    "/etc/profile",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];

/// Devices that hold nothing. A terminal is none of them: it is the gateway's.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Restricts this process.
pub(super) fn restrict(confinement: &Confinement) -> Result<(), String> {
    let own = PathFd::new(&confinement.directory).map_err(|error| error.to_string())?;
    let status = enforce(confinement, own).map_err(|error| error.to_string())?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => Ok(()),
        (_, LandlockStatus::Available { effective_abi, .. }) => {
            Err(format!("this kernel has version {} of it, not {}", effective_abi as i32, WANTED as i32))
        }
        (_, LandlockStatus::NotEnabled) => Err("this kernel was started without it".to_owned()),
        (_, _) => Err("this kernel does not have it".to_owned()),
    }
}

fn enforce(confinement: &Confinement, own: PathFd) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::from_read(WANTED);
    let tcp: BitFlags<AccessNet> = match confinement.network {
        Network::None => AccessNet::BindTcp | AccessNet::ConnectTcp,
        Network::Outbound => AccessNet::BindTcp.into(),
    };
    let system = SYSTEM.iter().chain(&SETTINGS);
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(tcp)?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .add_rule(PathBeneath::new(own, in_directory()))?
        .add_rules(path_beneath_rules(system, read))?
        .add_rules(path_beneath_rules(&confinement.readable, read))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
        .restrict_self()
}

/// Everything but devices and sockets.
fn in_directory() -> BitFlags<AccessFs> {
    let forbidden = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev;
    AccessFs::from_all(WANTED) & !forbidden
}
