//! Puts the clients into a folder of the build, once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program for an interpreter, with what it needs beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Script {
    Python(&'static str),
    Node(&'static str),
}

impl Script {
    /// The command that runs it, without arguments. Installs what it needs if that is not there.
    pub(crate) fn command(self) -> Command {
        let (interpreter, folder, file) = match self {
            Self::Python(file) => {
                let folder = installed("python", &["requirements.txt", "payments.py", file], "requirements.txt", venv);
                (folder.join("venv/bin/python"), folder, file)
            }
            Self::Node(file) => {
                let files = ["package.json", "package-lock.json", "payments.mjs", file];
                (PathBuf::from("node"), installed("node", &files, "package-lock.json", modules), file)
            }
        };
        let mut command = Command::new(interpreter);
        command.arg(folder.join(file)).current_dir(&folder);
        // What it talks to is on this machine.
        for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(proxy).env_remove(proxy.to_uppercase());
        }
        command
    }
}

/// A folder with these files and what `install` makes of them. It does so again when `list` is not as it was.
fn installed(name: &str, files: &[&str], list: &str, install: fn(&Path)) -> PathBuf {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/scripts");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name);
    fs::create_dir_all(&folder).unwrap();
    // Tests of one process and of two wait for each other.
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    for file in files {
        let (source, copy) = (fs::read(scripts.join(file)).unwrap(), folder.join(file));
        // Another test may be reading it.
        if fs::read(&copy).ok().as_ref() != Some(&source) {
            fs::write(copy, source).unwrap();
        }
    }
    let (wanted, stamp) = (fs::read(scripts.join(list)).unwrap(), folder.join("installed"));
    if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
        install(&folder);
        fs::write(stamp, wanted).unwrap();
    }
    folder
}

fn venv(folder: &Path) {
    let packages = "`python3` and `python3-venv`";
    run(Command::new("python3").args(["-m", "venv", "--clear", "venv"]).current_dir(folder), packages);
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", "requirements.txt"];
    run(Command::new(folder.join("venv/bin/python")).args(pip).current_dir(folder), packages);
}

fn modules(folder: &Path) {
    let packages = "`nodejs` (18 or later) and `npm`";
    run(Command::new("node").arg("--version").current_dir(folder), packages);
    let npm = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit-lockfile-registry-resolved"];
    run(Command::new("npm").args(npm).current_dir(folder), packages);
}

fn run(command: &mut Command, packages: &str) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{command:?} cannot be started ({error}): install the Debian packages {packages}");
    });
    assert!(
        output.status.success(),
        "{command:?} failed; it needs the Debian packages {packages} and the registry of the language:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
