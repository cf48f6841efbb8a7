//! One case for each way out, without a network. Each is first seen to work for who is not confined.

use std::{
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt as _,
            net::{SocketAddr, UnixListener},
        },
    },
    process::Command,
};

use anyhow::Result;
use moongate_test_support::Gateway;
use serde_json::Value;

use crate::support::{Caller, ESCAPE, session, start, yaml};

/// A gateway, a session with the program that tries to get out, and a directory that is none of its business.
struct Scene {
    gateway: Gateway,
    caller: Caller,
    outside: tempfile::TempDir,
}

impl Scene {
    async fn set() -> Result<Self> {
        Self::set_with("").await
    }

    async fn set_with(yaml: &str) -> Result<Self> {
        let gateway = start(yaml).await?;
        let caller = session(&gateway, "confined");
        std::fs::copy(ESCAPE, caller.directory().await?.join("escape"))?;
        Ok(Self { gateway, caller, outside: tempfile::tempdir()? })
    }

    fn outside(&self, name: &str) -> String {
        self.outside.path().join(name).display().to_string()
    }

    /// What happens to `command` in the session, which must fail, after it was seen to work out here.
    async fn denied(&self, command: &str) -> Result<String> {
        let free = command.replace("./escape", ESCAPE);
        let free = Command::new("/bin/sh").args(["-c", &free]).output()?;
        assert!(free.status.success(), "{command} does not even work here: {free:?}");
        let confined: Value = self.caller.run(command).await?;
        assert_eq!(confined["status"], "failed", "{command} got out: {confined}");
        Ok(confined["stderr"].as_str().unwrap_or_default().to_owned())
    }
}

/// Whether what was said means that it is not allowed, by landlock or by mounts that are read-only.
fn refused(said: &str) -> bool {
    ["Permission denied", "Read-only file system"].iter().any(|why| said.contains(why))
}

#[tokio::test]
async fn nothing_is_read_outside() -> Result<()> {
    let scene = Scene::set().await?;
    let file = scene.outside("secret");
    std::fs::write(&file, "a secret")?;
    let said = scene.denied(&format!("cat {file}")).await?;
    assert!(said.contains("Permission denied"), "{said}");
    let said = scene.denied(&format!("ls {}", scene.outside(""))).await?;
    assert!(said.contains("Permission denied"), "{said}");
    // Nor by a link that lies inside.
    scene.caller.output(&format!("ln -s {file} link")).await?;
    let link = scene.caller.run("cat link").await?;
    assert!(refused(link["stderr"].as_str().unwrap_or_default()), "{link}");
    Ok(())
}

#[tokio::test]
async fn nothing_is_written_outside() -> Result<()> {
    let scene = Scene::set().await?;
    let file = scene.outside("made");
    let said = scene.denied(&format!("echo x > {file}")).await?;
    assert!(refused(&said), "{said}");
    assert_eq!(std::fs::read_to_string(&file)?, "x\n", "that was the one of us");
    let said = scene.denied(&format!("echo more >> {file}")).await?;
    assert!(refused(&said), "{said}");
    assert_eq!(std::fs::read_to_string(&file)?, "x\nmore\n", "one of us, and nobody else");
    Ok(())
}

#[tokio::test]
async fn nothing_is_made_outside() -> Result<()> {
    let scene = Scene::set().await?;
    // What one of us makes is taken away again, so that its being there is not the reason.
    for make in ["touch", "mkdir", "mkfifo", "ln -s target", "cp /bin/true"] {
        let path = scene.outside("new");
        let said = scene.denied(&format!("{make} {path} && rm -r {path}")).await?;
        assert!(refused(&said), "{make}: {said}");
        assert!(!std::fs::exists(&path)?, "{make}");
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_removed_or_moved_outside() -> Result<()> {
    let scene = Scene::set().await?;
    let file = scene.outside("kept");
    for way in [format!("rm {file}"), format!("mv {file} {file}.moved"), format!("truncate -s 0 {file}")] {
        std::fs::write(&file, "kept")?;
        // One of us may, and it is put back for the one who may not.
        let worked = Command::new("/bin/sh").args(["-c", &way]).status()?;
        assert!(worked.success(), "{way} does not even work here");
        std::fs::write(&file, "kept")?;
        let ended = scene.caller.run(&way).await?;
        let said = ended["stderr"].as_str().unwrap_or_default();
        assert!(ended["status"] == "failed" && refused(said), "{way}: {ended}");
        assert_eq!(std::fs::read_to_string(&file)?, "kept", "{way}");
    }
    // Nor taken inside, by a name that may be written.
    let moved = scene.caller.run(&format!("mv {file} here")).await?;
    assert_eq!(moved["status"], "failed", "{moved}");
    assert_eq!(std::fs::read_to_string(&file)?, "kept");
    Ok(())
}

#[tokio::test]
async fn modes_and_owners_are_not_changed_outside() -> Result<()> {
    let scene = Scene::set().await?;
    let file = scene.outside("mode");
    std::fs::write(&file, "")?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
    let said = scene.denied(&format!("chmod 777 {file}")).await?;
    // Which of the two depends on whether this machine lets a process have mounts of its own.
    assert!(
        ["Read-only file system", "Operation not permitted"].iter().any(|why| said.contains(why)),
        "{said}"
    );
    assert_eq!(std::fs::metadata(&file)?.permissions().mode() & 0o777, 0o777, "that was the one of us");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
    scene.caller.run(&format!("ln -s {file} link; chmod 777 link")).await?;
    assert_eq!(std::fs::metadata(&file)?.permissions().mode() & 0o777, 0o600, "nor by a link");
    let own = "$(stat -c %u:%g /proc/self 2>/dev/null || id -u)";
    scene.denied(&format!("chown {own} {file}")).await?;
    scene.denied(&format!("touch -d @0 {file}")).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_open_already_is_changed_for_nobody_else() -> Result<()> {
    let scene = Scene::set().await?;
    // The mode it has everywhere, so that nothing happens where this is not refused.
    let said = scene.caller.run("chmod 666 /dev/stdin").await?;
    assert_eq!(said["status"], "failed", "the device of the whole machine was changed: {said}");
    // Pipes to the gateway, which goes on reading.
    let said = scene.caller.run("chmod 0 /dev/stdout /dev/stderr; echo out; echo err >&2").await?;
    assert_eq!(said["stdout"], "out", "{said}");
    assert!(said["stderr"].as_str().unwrap_or_default().ends_with("err"), "{said}");
    Ok(())
}

#[tokio::test]
async fn nobody_is_reached_over_tcp() -> Result<()> {
    let scene = Scene::set().await?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let said = scene.denied(&format!("./escape tcp {}", listener.local_addr()?)).await?;
    assert!(said.contains("Operation not permitted"), "{said}");
    scene.denied("./escape listen 127.0.0.1:0").await?;
    Ok(())
}

#[tokio::test]
async fn nobody_is_reached_over_udp() -> Result<()> {
    let scene = Scene::set().await?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let said = scene.denied(&format!("./escape udp {}", socket.local_addr()?)).await?;
    assert!(said.contains("Operation not permitted"), "{said}");
    Ok(())
}

#[tokio::test]
async fn nobody_is_reached_by_a_unix_socket() -> Result<()> {
    let scene = Scene::set().await?;
    let path = scene.outside("socket");
    let _listener = UnixListener::bind(&path)?;
    let said = scene.denied(&format!("./escape unix {path}")).await?;
    assert!(said.contains("Operation not permitted"), "{said}");
    Ok(())
}

#[tokio::test]
async fn nobody_is_reached_by_an_abstract_unix_socket() -> Result<()> {
    let scene = Scene::set().await?;
    let name = format!("moongate-test-{}", scene.outside("").replace('/', "-"));
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let said = scene.denied(&format!("./escape abstract {name}")).await?;
    assert!(said.contains("Operation not permitted"), "{said}");
    Ok(())
}

/// Somebody else's process.
struct Stranger(std::process::Child);

impl Stranger {
    fn start() -> Result<Self> {
        Ok(Self(Command::new("sleep").arg("1000").stdin(std::process::Stdio::piped()).spawn()?))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn nobody_else_is_signalled() -> Result<()> {
    let scene = Scene::set().await?;
    let stranger = Stranger::start()?;
    // 0 asks only whether one may.
    let said = scene.denied(&format!("kill -0 {}", stranger.pid())).await?;
    assert!(said.contains("not permitted"), "{said}");
    // Its own are another matter.
    scene.caller.output("sleep 1000 & kill $!").await?;
    Ok(())
}

#[tokio::test]
async fn nobody_else_is_traced() -> Result<()> {
    let scene = Scene::set().await?;
    let stranger = Stranger::start()?;
    for way in ["trace", "take"] {
        let said = scene.denied(&format!("./escape {way} {}", stranger.pid())).await?;
        assert!(said.contains("EPERM") || said.contains("Operation not permitted"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn nobody_else_is_limited_or_slowed_down() -> Result<()> {
    let scene = Scene::set().await?;
    let stranger = Stranger::start()?;
    let pid = stranger.pid();
    for way in [
        format!("prlimit --pid {pid} --nofile=64:64"),
        format!("renice -n 5 -p {pid}"),
        format!("taskset -p 1 {pid}"),
        format!("chrt --batch -p 0 {pid}"),
        format!("ionice -c 3 -p {pid}"),
    ] {
        let said = scene.denied(&way).await?;
        assert!(said.contains("Operation not permitted"), "{way}: {said}");
    }
    // Itself is another matter.
    scene.caller.output("ulimit -n 32 && prlimit --nofile=16:16 true && nice -n 5 true").await?;
    scene.caller.output("taskset 1 true && chrt --batch 0 true && ionice -c 3 true").await?;
    Ok(())
}

/// Memory that is shared by its number, removed at the end.
struct Segment(String);

impl Segment {
    fn make() -> Result<Self> {
        let made = Command::new("ipcmk").args(["-M", "4096"]).output()?;
        let said = String::from_utf8(made.stdout)?;
        Ok(Self(said.rsplit(':').next().unwrap_or_default().trim().to_owned()))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let removed = Command::new("ipcrm").args(["-m", &self.0]).status().unwrap();
        assert!(removed.success() || std::thread::panicking(), "somebody else has removed it");
    }
}

#[tokio::test]
async fn memory_that_others_share_is_not_removed() -> Result<()> {
    let scene = Scene::set().await?;
    let segment = Segment::make()?;
    let removed = scene.caller.run(&format!("ipcrm -m {}", segment.0)).await?;
    assert_eq!(removed["status"], "failed", "it was removed: {removed}");
    Ok(())
}

#[tokio::test]
async fn the_environment_of_others_is_not_read() -> Result<()> {
    let scene = Scene::set().await?;
    let stranger = Stranger::start()?;
    let said = scene.denied(&format!("cat /proc/{}/environ", stranger.pid())).await?;
    assert!(said.contains("Permission denied"), "{said}");
    Ok(())
}

#[tokio::test]
async fn its_own_environment_is_clean() -> Result<()> {
    let gateway = Gateway::builder().config(&yaml("")).env("SECRET_OF_THE_GATEWAY", "x").start().await?;
    let caller = session(&gateway, "clean");
    let here = caller.directory().await?;
    let here = here.display();
    let names = caller.output("env | grep -v '^_=' | sort").await?;
    let expected = [
        format!("HOME={here}"),
        "LANG=C.UTF-8".to_owned(),
        "PATH=/bin:/usr/bin:/usr/local/bin".to_owned(),
        format!("PWD={here}"),
        format!("TMPDIR={here}/.tmp"),
    ];
    assert_eq!(names.lines().collect::<Vec<_>>(), expected);
    assert_eq!(caller.output("cat; mktemp >/dev/null && echo made").await?, "made", "its input is empty");
    Ok(())
}

#[tokio::test]
async fn usual_things_work_in_the_directory() -> Result<()> {
    let scene = Scene::set().await?;
    let script = "mkdir -p a/b && echo one > a/b/c && touch a/b/d && cp a/b/c e && mv e f && ln -s f g && cat g && \
                  (echo two; echo three) | sort -r && rm -r a && echo x > /dev/null && ls";
    assert_eq!(scene.caller.output(script).await?, "one\ntwo\nthree\nescape\nf\ng");
    Ok(())
}

#[tokio::test]
async fn modes_are_changed_inside_where_the_machine_lets_us() -> Result<()> {
    let scene = Scene::set().await?;
    let report = scene.gateway.home().run(&["doctor"]).await?;
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    let ran = scene.caller.run("echo 'echo ran' > script && chmod 755 script && ./script").await?;
    if report.contains("changed in the directory only, by mounts that are read-only elsewhere") {
        assert_eq!(ran["stdout"], "ran", "{ran}");
    } else {
        assert!(report.contains("changed not at all, by seccomp"), "{report}");
        assert!(ran["stderr"].as_str().unwrap_or_default().contains("Operation not permitted"), "{ran}");
    }
    Ok(())
}

#[tokio::test]
async fn with_outbound_only_internet_sockets_are_let_through() -> Result<()> {
    let scene = Scene::set_with("network: outbound").await?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    scene.caller.output(&format!("./escape tcp {}", listener.local_addr()?)).await?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    scene.caller.output(&format!("./escape udp {}", socket.local_addr()?)).await?;
    let path = scene.outside("socket");
    let _listener = UnixListener::bind(&path)?;
    scene.denied(&format!("./escape unix {path}")).await?;
    for way in ["listen 127.0.0.1:0", "unbound tcp", "unbound mptcp"] {
        scene.denied(&format!("./escape {way}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn where_all_is_enforced_commands_run_also_if_that_is_required() -> Result<()> {
    let scene = Scene::set_with("confine: required").await?;
    assert_eq!(scene.caller.output("echo fine").await?, "fine");
    let report = scene.gateway.home().run(&["doctor"]).await?;
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("ok     workspace      commands are confined"), "{report}");
    Ok(())
}

#[tokio::test]
async fn doctor_tries_the_root_that_is_configured() -> Result<()> {
    let gateway = start("root: /proc/nothing/can/be/made").await?;
    let report = gateway.home().run(&["doctor"]).await?;
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("cannot make directories in /proc"), "{report}");
    assert!(report.contains("backends.workspace.root"), "{report}");
    Ok(())
}

#[tokio::test]
async fn more_can_be_made_readable_but_not_writable() -> Result<()> {
    let outside = tempfile::tempdir()?;
    let file = outside.path().join("tool");
    std::fs::write(&file, "a tool\n")?;
    let yaml = format!("readable: [{}]", outside.path().display());
    let scene = Scene::set_with(&yaml).await?;
    assert_eq!(scene.caller.output(&format!("cat {}", file.display())).await?, "a tool");
    scene.denied(&format!("echo x >> {}", file.display())).await?;
    Ok(())
}
