//! The program as a user has it.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::path::Path;
use std::process::Command;

/// What it answered: whether it succeeded, standard output and standard error.
fn window(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_window")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_trace_that_was_written_is_tuned_to_files_as_to_the_screen() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    let made = ["--rate", "0.005", "--loss", "0.2", "--seed", "7"];
    for name in ["trace.csv", "trace.csv.gz"] {
        assert!(window(&[&["generate", "--out", &path(name)], made.as_slice()].concat()).0);
    }
    let (done, plain, errors) = window(&["tune", &path("trace.csv"), "--out", &path("plain")]);
    // Nobody sees a progress bar here.
    assert!(done && errors.is_empty(), "{errors}");
    let (_, gzip, _) = window(&["tune", &path("trace.csv.gz")]);
    let (_, made_up, _) = window(&[&["tune"], made.as_slice()].concat());
    assert_eq!(plain, gzip);
    assert_eq!(plain, made_up);
    assert_eq!(plain, std::fs::read_to_string(path("plain.md")).unwrap());
    let expected = ["plain-capacity.csv", "plain.csv", "plain.md", "plain.svg", "trace.csv", "trace.csv.gz"];
    assert_eq!(names(folder.path()), expected);

    // Few arrivals show little, and it says what would help.
    assert!(plain.contains("**No window up to 29d") && plain.contains("A larger trace"), "{plain}");
    let (_, enough, _) =
        window(&["tune", &path("trace.csv"), "--target", "0.01", "--memory", "1MiB", "--anchor", "arrival"]);
    for words in ["A window of **", "more than the budget", "- Tombstones:", "- Time-ordered keys"] {
        assert!(enough.contains(words), "{words}: {enough}");
    }
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_left_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    let trace = "time,key,size,route,scope,took_ms\n1,a,1,r,s,\n2,b,x,r,s,\n";
    std::fs::write(path("trace.csv"), trace).unwrap();
    let out = path("trace");
    let tune = path("trace.csv");
    let cases: [(&[&str], &str); 18] = [
        (&["tune", &tune], "trace.csv: line 3, column 3 (size): `x` is not a size"),
        (&["tune", &tune, "--out", &out], "would write over the trace"),
        (&["tune", "no/such/file"], "no/such/file: No such file"),
        (&["tune", &tune, "--shortest", "0s"], "must be longer than zero"),
        (&["tune", &tune, "--at", "1h,0s"], "must be longer than zero"),
        (&["tune", &tune, "--at=-1h"], "invalid value '-1h'"),
        (&["tune", &tune, "--longest", "99999999999d"], "longer than 36500 days"),
        (&["tune", &tune, "--longest", "1m"], "is not below the longest"),
        (&["tune", &tune, "--windows", "65"], "a grid has 1 to 64 windows, not 65"),
        (&["tune", &tune, "--response", "99999999d"], "longer than 36500 days"),
        (&["tune", &tune, "--sample", "0"], "a sample is a share above 0"),
        (&["tune", &tune, "--target", "0"], "a target is a rate above 0"),
        (&["tune", &tune, "--store", "paper"], "no store `paper` was weighed"),
        (&["tune", &tune, "--client", "svix"], "cannot be used with"),
        (&["tune", &tune, "--rate", "5"], "cannot be used with"),
        (&["tune", "--sort"], "the following required arguments were not provided"),
        (&["tune", "--client", "nobody"], "there is no preset `nobody`"),
        (&["generate", "--out", &path("made.csv"), "--loss", "2"], "the loss rate must be from 0 to 1"),
    ];
    for (arguments, expected) in cases {
        let (done, printed, errors) = window(arguments);
        assert!(!done && printed.is_empty() && errors.contains(expected), "{arguments:?}: {errors}");
    }
    assert_eq!(names(folder.path()), ["trace.csv"]);
    assert_eq!(std::fs::read_to_string(&tune).unwrap(), trace);

    // A folder has one of the names.
    std::fs::write(&tune, "time,key,size,route,scope,took_ms\n1,a,1,r,s,\n2,b,1,r,s,\n").unwrap();
    std::fs::create_dir(path("out.csv")).unwrap();
    let (done, _, errors) = window(&["tune", &tune, "--out", &path("out")]);
    assert!(!done && errors.contains("out.csv is a folder"), "{errors}");
    assert_eq!(names(folder.path()), ["out.csv", "trace.csv"]);
}

#[test]
fn a_made_up_trace_that_is_longer_than_this_year_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv").into_os_string().into_string().unwrap();
    assert!(window(&["generate", "--out", &path, "--duration", "3650d", "--rate", "0.00001"]).0);
    let (done, text, errors) = window(&["tune", &path]);
    assert!(done && text.contains("## Recommended"), "{errors}");
}
