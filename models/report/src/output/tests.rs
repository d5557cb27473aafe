//! Tests outputs: files, links, devices and folders, each checked beforehand and when it is written.

use std::os::unix::fs::FileExt;

use super::*;

fn write(path: &Path, text: &str) -> Result<(), InputError> {
    write_atomically("--trace", path, |file| file.write_all(text.as_bytes()))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_failure_leaves_the_old_file_and_no_draft() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    let path = folder.join("a.json");
    write(&path, "old").unwrap();
    let error = write_atomically("--trace", &path, |file| {
        file.write_all(b"new")?;
        Err(io::Error::other("disk full"))
    });
    assert!(error.unwrap_err().to_string().contains("disk full"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(&folder), ["a.json"]);
}

#[test]
fn unwritable_places_are_refused_before_and_during_writing() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    fs::write(folder.join("file"), "").unwrap();
    for (name, wanted) in [
        ("", "is a folder"),
        ("new/", "is a folder"),
        ("no/a.json", "folder that does not exist"),
        ("file/a.json", "cannot be written"),
        ("a\0b", "cannot be written"),
    ] {
        let path = folder.join(name);
        let refused = check_writable("--trace", &path).unwrap_err().to_string();
        assert!(refused.starts_with("--trace") && refused.contains(wanted), "{name:?}: {refused}");
        assert!(write(&path, "new").unwrap_err().to_string().contains(wanted), "{name:?}");
    }
    // A check leaves nothing.
    assert_eq!(check_writable("--trace", &folder.join("a.json")).map(drop), Ok(()));
    assert_eq!(names(&folder), ["file"]);
    // The longest valid name has a draft too.
    let longest = folder.join("a".repeat(255));
    assert_eq!(check_writable("--trace", &longest).map(drop), Ok(()));
    write(&longest, "new").unwrap();
    assert!(check_writable("--trace", &folder.join("a".repeat(256))).is_err());
}

#[test]
fn no_two_outputs_are_one_file() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    let (a, same, b) = (
        folder.join("a.svg"),
        folder.join("../").join(folder.file_name().unwrap()).join("a.svg"),
        folder.join("b.svg"),
    );
    assert_eq!(check_outputs(&[("--trace", Some(&a)), ("--plot", Some(&b)), ("--html", None)]), Ok(()));
    let error = check_outputs(&[("--trace", Some(&a)), ("--plot", Some(&same))]).unwrap_err();
    assert_eq!((error.place.to_string().as_str(), error.message.contains("--trace")), ("--plot", true));
    let error = check_outputs(&[("--html", Some(&b))]).unwrap_err();
    assert_eq!((error.place.to_string().as_str(), error.message.as_str()), ("--html", "must end in .html"));
}

#[cfg(unix)]
mod unix {
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    /// Through a link to a link to a file, to a file that does not exist yet, and to nowhere nothing is written; a folder
    /// that is a link is one.
    #[test]
    fn links_to_files_are_refused() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_path_buf();
        let real = folder.join("real");
        fs::create_dir(&real).unwrap();
        fs::write(real.join("old.json"), "old").unwrap();
        symlink(&real, folder.join("folder")).unwrap();
        for (link, target, reason) in [
            ("first", "real/old.json", "is a symbolic link to "),
            ("second", "first", "is a symbolic link to "),
            ("new", "real/new.json", "is a symbolic link to "),
            ("nowhere", "no/where", "is a symbolic link to "),
            ("round", "round", "leads back to itself"),
            ("to-a-folder", "real", "is a folder"),
        ] {
            let path = folder.join(link);
            symlink(target, &path).unwrap();
            for error in [check_writable("--trace", &path).unwrap_err(), write(&path, "text").unwrap_err()] {
                assert!(error.message.contains(reason), "{link}: {error}");
            }
            assert!(path.is_symlink(), "{link}");
        }
        assert_eq!(fs::read_to_string(real.join("old.json")).unwrap(), "old");
        assert_eq!(names(&real), ["old.json"]);
        write(&folder.join("folder/new.json"), "text").unwrap();
        assert_eq!(fs::read_to_string(real.join("new.json")).unwrap(), "text");
        let failed = write_atomically("--trace", &real.join("new.json"), |_| Err(io::Error::other("disk full")));
        assert!(failed.is_err() && fs::read_to_string(real.join("new.json")).unwrap() == "text");
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_path_buf();
        let path = folder.join("a.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn devices_and_pipes_are_written_and_not_replaced() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_path_buf();
        symlink("/dev/null", folder.join("nothing")).unwrap();
        for path in [Path::new("/dev/null"), &folder.join("nothing")] {
            assert_eq!(check_writable("--trace", path), Ok(Destination::Stream("/dev/null".into())));
            write(path, "text").unwrap();
        }
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert!(write(Path::new("/dev/full"), "text").unwrap_err().message.contains("cannot be written"));
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());

        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // It has no reader yet, and the check does not wait for one.
        assert_eq!(check_writable("--trace", &pipe).map(drop), Ok(()));
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut text = String::new();
                File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        });
        write(&pipe, "text").unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(names(&folder), ["nothing", "pipe"]);
    }

    /// A descriptor of a regular file is appended to: replacing the file would detach it from the descriptor.
    #[cfg(target_os = "linux")]
    #[test]
    fn descriptors_are_appended_to() {
        use std::os::fd::AsRawFd;

        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_path_buf();
        let path = folder.join("a");
        let mut file = File::options().create(true).append(true).open(&path).unwrap();
        file.write_all(b"before ").unwrap();
        let named = PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd()));
        assert!(matches!(check_writable("--trace", &named), Ok(Destination::Stream(_))));
        write(&named, "text").unwrap();
        file.write_all(b" behind").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before text behind");
        assert_eq!(check_writable("--trace", Path::new("/dev/stdout")), Ok(Destination::Stdout));
        assert_eq!(check_writable("--trace", Path::new("/proc/self/fd/2")), Ok(Destination::Stderr));
        assert!(check_writable("--trace", Path::new("/dev/fd/987654")).is_err());
    }
}

/// What already has a draft's name is neither written nor removed, also through a link to another file.
#[test]
fn drafts_are_always_new_files() {
    let folder = std::env::temp_dir().join(format!("lockstep-drafts-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (path, precious) = (folder.join("trace.json"), folder.join("precious"));
    let planted = folder.join(format!("trace.json.{}.tmp", std::process::id()));
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, &planted).unwrap();
    assert!(check_writable("--trace", &path).is_ok());
    write(&path, "new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(planted.is_symlink());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_written_at_places_is_replaced_whole_and_a_stream_is_refused() {
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("a.bin");
    write(&path, "old").unwrap();
    let fill = |file: &File| {
        file.write_all_at(b"end", 3)?;
        file.write_all_at(b"new", 0)
    };
    replace_atomically("--checkpoint", &path, fill).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "newend");
    let error = replace_atomically("--checkpoint", &path, |file| {
        file.write_all_at(b"half", 0)?;
        Err(io::Error::other("disk full"))
    });
    assert!(error.unwrap_err().to_string().contains("disk full"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "newend");
    assert_eq!(names(kept.path()), ["a.bin"]);
    let refused = replace_atomically("--checkpoint", Path::new("/dev/null"), fill).unwrap_err().to_string();
    assert!(refused.contains("--checkpoint: /dev/null: is no file"), "{refused}");
}
