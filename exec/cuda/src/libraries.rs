//! Finds and loads NVIDIA's libraries at run time: the program is built and runs without them.
//!
//! The bindings (cudarc) end the process if a library is missing, and search only the loader's path. So each library is
//! loaded here first, from where Python's packages or an installer put it, and stays loaded: the bindings then find it
//! by name. Loading a library runs its code, so no folder is searched that the user or the system has not named.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_NOW};

/// Declares the libraries: description, name, file, cure if missing, and bindings.
macro_rules! libraries {
    ($($(#[$doc:meta])* $library:ident: $name:literal, $file:literal, $cure:literal, $bindings:ident;)*) => {
        /// A library that the device needs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum NvidiaLibrary {
            $($(#[$doc])* $library,)*
        }

        impl NvidiaLibrary {
            /// All of them.
            pub const ALL: [NvidiaLibrary; { [$($name),*].len() }] = [$(NvidiaLibrary::$library),*];

            /// Its name, the file of the version that the bindings are for, and the cure if it is missing.
            fn names(self) -> [&'static str; 3] {
                match self {
                    $(NvidiaLibrary::$library => [$name, $file, $cure],)*
                }
            }

            /// Whether the bindings will find it too.
            fn is_bound(self) -> bool {
                // SAFETY: it is loaded already, so no new code runs.
                unsafe {
                    match self {
                        $(NvidiaLibrary::$library => cudarc::$bindings::sys::is_culib_present(),)*
                    }
                }
            }
        }
    };
}

libraries! {
    /// The driver, part of the GPU's kernel module.
    Driver: "driver", "libcuda.so.1", "install NVIDIA's driver, 580 or newer, on a machine with a GPU", driver;
    /// Compiles the project's kernels.
    Nvrtc: "NVRTC", "libnvrtc.so.13", "pip install nvidia-cuda-nvrtc", nvrtc;
    /// Matrix products.
    Cublas: "cuBLAS", "libcublas.so.13", "pip install nvidia-cublas", cublas;
    /// Matrix products with fused bias and ReLU.
    CublasLt: "cuBLASLt", "libcublasLt.so.13", "pip install nvidia-cublas", cublaslt;
    /// Convolutions.
    Cudnn: "cuDNN", "libcudnn.so.9", "pip install nvidia-cudnn-cu13", cudnn;
    /// Collectives among GPUs; a single GPU needs none.
    Nccl: "NCCL", "libnccl.so.2", "only for several GPUs: pip install nvidia-nccl-cu13", nccl;
}

impl NvidiaLibrary {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.names()[0]
    }

    /// The file of the version that the bindings are for.
    pub fn file(self) -> &'static str {
        self.names()[1]
    }

    /// What to do if it is missing.
    pub fn cure(self) -> &'static str {
        self.names()[2]
    }
}

/// A loaded library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedLibrary {
    /// The library.
    pub library: NvidiaLibrary,
    /// Its path; the bare name if the loader found it.
    pub path: PathBuf,
}

/// A library that cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The library.
    pub library: NvidiaLibrary,
    /// Each place searched, and what was wrong there.
    pub tried: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missing { library, tried } = self;
        let (name, file, tried) = (library.name(), library.file(), tried.join(", "));
        write!(f, "no {name} ({file}) in: {tried}; {}", library.cure())
    }
}

/// Folders in which libraries are searched, some before and some after the loader's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LibraryFolders {
    before: Vec<PathBuf>,
    after: Vec<PathBuf>,
    /// Places that are not searched, with the reason.
    ignored: Vec<String>,
}

/// The folder that the user names; libraries are loaded for the process, whatever part of it asks first.
static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// The variable by which an activated Python environment states its folder.
const ENVIRONMENT: &str = "VIRTUAL_ENV";

/// Where drivers and installers put libraries.
const USUAL: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/lib64",
    "/usr/lib/aarch64-linux-gnu",
];

impl LibraryFolders {
    /// From now on [`LibraryFolders::usual`] searches `folder` before all others. Only the first call counts.
    ///
    /// It holds the libraries, or is a Python environment in which NVIDIA's packages are installed.
    pub fn name(folder: &Path) {
        let _ = NAMED.set(folder.to_owned());
    }

    /// The named folder, the loader's path, the usual folders, and the Python environment that is activated.
    pub fn usual() -> LibraryFolders {
        let mut places =
            LibraryFolders { after: USUAL.iter().map(PathBuf::from).collect(), ..LibraryFolders::default() };
        if let Some(named) = NAMED.get() {
            places.before.push(named.clone());
            places.before.extend(packages(named));
        }
        places.with_activated(std::env::var_os(ENVIRONMENT).map(PathBuf::from).as_deref())
    }

    /// Searches the activated Python environment, if its path does not depend on the present folder.
    fn with_activated(mut self, environment: Option<&Path>) -> LibraryFolders {
        match environment {
            Some(folder) if folder.is_absolute() => self.with_python(folder),
            Some(folder) if !folder.as_os_str().is_empty() => {
                self.ignored.push(format!("{ENVIRONMENT} ({}, ignored: not an absolute path)", folder.display()));
                self
            }
            _ => self,
        }
    }

    /// Searches `folder` before all others.
    #[must_use]
    pub fn with(mut self, folder: &Path) -> LibraryFolders {
        self.before.insert(0, folder.to_owned());
        self
    }

    /// Searches NVIDIA's packages in a Python environment, after all others.
    #[must_use]
    pub fn with_python(mut self, environment: &Path) -> LibraryFolders {
        self.after.extend(packages(environment));
        self
    }
}

/// The folders of the libraries in NVIDIA's packages of a Python environment.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let pythons = folders(&environment.join("lib"));
    let packages = pythons.iter().flat_map(|python| folders(&python.join("site-packages/nvidia")));
    packages.map(|package| package.join("lib")).collect()
}

/// The folders in a folder, by name; empty if it cannot be read.
fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(of).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

/// Loads a library for the rest of the process's life.
///
/// # Errors
/// It is not found, or cannot be loaded.
pub(super) fn load(library: NvidiaLibrary, places: &LibraryFolders) -> Result<LoadedLibrary, Missing> {
    let mut tried = Vec::new();
    let inside = |folder: &PathBuf| folder.join(library.file());
    let before = places.before.iter().map(inside);
    let all = before.chain([PathBuf::from(library.file())]).chain(places.after.iter().map(inside));
    for path in all {
        let by_loader = path.components().count() == 1;
        if !by_loader && !path.is_file() {
            tried.push(path.parent().unwrap_or(&path).display().to_string());
            continue;
        }
        match open(library, &path) {
            Ok(()) if library.is_bound() => return Ok(LoadedLibrary { library, path }),
            Ok(()) => {
                let cure = "but the bindings look for it by another name: put a folder with a link of the name without a \
                            version into LD_LIBRARY_PATH";
                tried.push(format!("{}, {cure}", path.display()));
            }
            Err(_) if by_loader => tried.push("the loader's path".to_owned()),
            Err(error) => tried.push(format!("{} ({error})", path.display())),
        }
    }
    tried.extend(places.ignored.iter().cloned());
    Err(Missing { library, tried })
}

fn open(library: NvidiaLibrary, path: &Path) -> Result<(), libloading::Error> {
    if library == NvidiaLibrary::Nvrtc {
        // NVRTC asks the loader for its built-in functions by name, without a path.
        for companion in companions(path) {
            // SAFETY: this library of the same package has no initialisation that could disturb others.
            std::mem::forget(unsafe { Handle::open(Some(companion), RTLD_NOW | RTLD_GLOBAL) }?);
        }
    }
    // SAFETY: NVIDIA's libraries may be loaded at any time, and this one is never unloaded.
    std::mem::forget(unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?);
    Ok(())
}

/// The files beside NVRTC that hold its built-in functions.
fn companions(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let is_companion = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc-builtins.so."))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_companion).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A missing library is reported with every place searched, and a file that is not a library with the reason.
    #[test]
    fn errors_of_missing_libraries_list_the_places_searched() {
        let folder = std::env::temp_dir().join(format!("lockstep-libraries-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(NvidiaLibrary::Cudnn.file()), "no library").expect("a file");
        let places = LibraryFolders {
            before: vec!["/nowhere".into(), folder.clone()],
            after: vec!["/nowhere/else".into()],
            ignored: Vec::new(),
        };
        let missing = load(NvidiaLibrary::Cudnn, &places);
        std::fs::remove_dir_all(&folder).expect("a folder to remove");
        // On a machine with the library there is nothing to test.
        let Err(missing) = missing else { return };
        assert_eq!(missing.tried.len(), 4);
        assert_eq!((missing.tried[0].as_str(), missing.tried[3].as_str()), ("/nowhere", "/nowhere/else"));
        assert!(missing.tried[1].contains("libcudnn.so.9 ("), "{missing}");
        assert!(missing.to_string().starts_with("no cuDNN (libcudnn.so.9) in: /nowhere, "), "{missing}");
        assert!(missing.to_string().ends_with("; pip install nvidia-cudnn-cu13"), "{missing}");
    }

    /// Of the present folder nothing is searched: not `.venv`, not a relative path in the environment.
    #[test]
    fn no_place_depends_on_the_present_folder() {
        for stated in [None, Some(""), Some(".venv"), Some("./.venv"), Some("venv/../.venv"), Some("/opt/venv")] {
            let places =
                LibraryFolders { after: USUAL.iter().map(PathBuf::from).collect(), ..LibraryFolders::default() };
            let places = places.with_activated(stated.map(Path::new));
            assert!(places.before.iter().chain(&places.after).all(|folder| folder.is_absolute()), "{places:?}");
            let relative = stated.is_some_and(|stated| !stated.is_empty() && !stated.starts_with('/'));
            assert_eq!(!places.ignored.is_empty(), relative, "{places:?}");
        }
    }
}
