//! Caches compiled programs on disk, so that only the first run on a machine waits for the compiler.
//!
//! A file's name is derived from everything that its program depends on, and it holds a digest of its content: a file
//! that is torn, changed or foreign is ignored, and the program is recompiled. Where the folder cannot be written,
//! every run compiles.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Magic bytes of a file; another layout has another number.
const HEAD: &[u8] = b"lockstep program 1\n";
/// Bytes of a digest.
const DIGEST: usize = 32;

/// The folder of compiled programs, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    folder: Option<PathBuf>,
}

/// Everything that a program depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key<'a> {
    /// The source's text.
    pub(super) text: &'a str,
    /// The compiler's options, without the architecture.
    pub(super) options: &'a [&'a str],
    /// The compiler's version, major and minor.
    pub(super) version: (i32, i32),
    /// As 90 for `sm_90`.
    pub(super) architecture: i32,
}

impl Cache {
    /// `$LOCKSTEP_CACHE`, else `~/.cache/lockstep`; no folder without a home directory, whose path must be absolute.
    pub fn usual() -> Cache {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = || set("HOME").filter(|home| home.is_absolute());
        Cache { folder: set("LOCKSTEP_CACHE").or_else(|| home().map(|home| home.join(".cache/lockstep"))) }
    }

    /// Caches in `folder`, which is created at the first write.
    pub fn at(folder: &Path) -> Cache {
        Cache { folder: Some(folder.to_owned()) }
    }

    /// No caching: everything is compiled.
    pub fn none() -> Cache {
        Cache { folder: None }
    }

    /// The program of `key`, if it is cached and intact.
    pub(super) fn read(&self, key: Key<'_>) -> Option<Vec<u8>> {
        let content = fs::read(self.folder.as_ref()?.join(key.file())).ok()?;
        let (digest, program) = content.strip_prefix(HEAD)?.split_at_checked(DIGEST)?;
        (Sha256::digest(program).as_slice() == digest).then(|| program.to_vec())
    }

    /// Stores the program of `key` if possible, atomically.
    pub(super) fn write(&self, key: Key<'_>, program: &[u8]) {
        let Some(folder) = &self.folder else { return };
        // On failure the next run compiles again, which only costs time.
        let _ = write(folder, &key.file(), program);
    }
}

impl Key<'_> {
    fn file(&self) -> String {
        let mut digest = Sha256::new();
        let mut part = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        part(self.text.as_bytes());
        part(self.options.join("\0").as_bytes());
        part(format!("{:?} {}", self.version, self.architecture).as_bytes());
        let name: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{name}.cubin")
    }
}

fn write(folder: &Path, file: &str, program: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let own = format!(".{file}.{}.{:?}", std::process::id(), std::thread::current().id());
    let temporary = folder.join(own);
    let mut to = fs::File::create_new(&temporary)?;
    let written = [HEAD, &Sha256::digest(program), program].iter().try_for_each(|part| to.write_all(part));
    let done = written.and_then(|()| fs::rename(&temporary, folder.join(file)));
    if done.is_err() {
        // Frees a full disk again.
        let _ = fs::remove_file(&temporary);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key<'_> = Key { text: "void f() {}", options: &["-a", "-b"], version: (13, 0), architecture: 90 };

    /// A folder of its own for each test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("lockstep-cache-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_stored_program_is_found_by_its_key_only() {
        let folder = Folder::new("keys");
        let cache = Cache::at(&folder.0);
        assert_eq!(cache.read(KEY), None);
        cache.write(KEY, b"program");
        assert_eq!(cache.read(KEY).as_deref(), Some(&b"program"[..]));
        let others = [
            Key { text: "void g() {}", ..KEY },
            Key { options: &["-a"], ..KEY },
            Key { options: &["-a-b"], ..KEY },
            Key { version: (13, 1), ..KEY },
            Key { version: (1, 30), ..KEY },
            Key { architecture: 100, ..KEY },
        ];
        for (i, other) in others.iter().enumerate() {
            assert_eq!(cache.read(*other), None, "{other:?}");
            cache.write(*other, &[i as u8]);
        }
        assert_eq!(cache.read(KEY).as_deref(), Some(&b"program"[..]));
        cache.write(KEY, b"");
        assert_eq!(cache.read(KEY).as_deref(), Some(&b""[..]), "the last one counts");
        assert_eq!(fs::read_dir(&folder.0).expect("the folder").count(), 7, "nothing temporary is left");
    }

    /// A file that is truncated anywhere, has a changed bit or other content is ignored.
    #[test]
    fn damaged_and_foreign_files_are_recompiled() {
        let folder = Folder::new("torn");
        let cache = Cache::at(&folder.0);
        cache.write(KEY, b"a program");
        let path = folder.0.join(KEY.file());
        let whole = fs::read(&path).expect("it is there");
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("a file");
            assert_eq!(cache.read(KEY), None, "{length} of {} bytes", whole.len());
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).expect("a file");
            assert_eq!(cache.read(KEY), None, "a bit of byte {at}");
        }
        fs::write(&path, [&whole[..], b"more"].concat()).expect("a file");
        assert_eq!(cache.read(KEY), None);
        cache.write(KEY, b"a program");
        assert_eq!(fs::read(&path).expect("it is there"), whole);
    }

    #[test]
    fn an_unwritable_folder_stores_nothing() {
        let folder = Folder::new("file");
        fs::write(&folder.0, "a file, not a folder").expect("a file");
        let cache = Cache::at(&folder.0.join("below"));
        cache.write(KEY, b"program");
        assert_eq!(cache.read(KEY), None);
        Cache::none().write(KEY, b"program");
        assert_eq!(Cache::none().read(KEY), None);
        fs::remove_file(&folder.0).expect("the file");
    }

    /// Ranks that start together write the same file at once; readers see one intact version.
    #[test]
    fn concurrent_writers_leave_one_intact_file() {
        let folder = Folder::new("writers");
        let cache = Cache::at(&folder.0);
        let programs: Vec<Vec<u8>> = (0..4).map(|of| vec![of; 100_000]).collect();
        std::thread::scope(|threads| {
            for program in &programs {
                threads.spawn(|| (0..20).for_each(|_| cache.write(KEY, program)));
            }
            for _ in 0..50 {
                let seen = cache.read(KEY);
                assert!(seen.is_none_or(|program| programs.contains(&program)));
            }
        });
        assert!(programs.contains(&cache.read(KEY).expect("the last one")));
        assert_eq!(fs::read_dir(&folder.0).expect("the folder").count(), 1);
    }
}
