//! Reads the settings of `library:nccl`: a version, and what NCCL's environment variables would force.

use std::fmt;
use std::str::FromStr;

use super::{Method, NcclProtocol};

/// A version of NCCL: 2 and its minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 27 for 2.27.
    pub minor: u32,
}

/// The versions whose figures are known.
const KNOWN: std::ops::RangeInclusive<u32> = 7..=30;

impl Default for Version {
    fn default() -> Version {
        Version { minor: 27 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2.{}", self.minor)
    }
}

impl FromStr for Version {
    type Err = String;

    /// Reads `2.27`, also `2.18.5`.
    fn from_str(text: &str) -> Result<Version, String> {
        let mut parts = text.split('.');
        let (major, minor) = (parts.next(), parts.next().and_then(|minor| minor.parse().ok()));
        let patch = parts.next().is_none_or(|patch| patch.parse::<u32>().is_ok());
        match (major, minor) {
            (Some("2"), Some(minor)) if KNOWN.contains(&minor) && patch && parts.next().is_none() => {
                Ok(Version { minor })
            }
            _ => Err(format!("`{text}` is not a known version of NCCL: use 2.{} to 2.{}", KNOWN.start(), KNOWN.end())),
        }
    }
}

/// A version, and what it is forced to take; nothing by default.
///
/// ```
/// use lockstep_topology::nccl::Request;
/// let request: Request = "@2.20:tree:ll128:8".parse().unwrap();
/// assert_eq!((request.version.minor, request.channels), (20, Some(8)));
/// assert_eq!(request.to_string(), "@2.20:tree:ll128:8");
/// assert_eq!("".parse(), Ok(Request::default()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Request {
    /// The version whose figures and rules apply.
    pub version: Version,
    /// `NCCL_ALGO`.
    pub method: Option<Method>,
    /// `NCCL_PROTO`.
    pub protocol: Option<NcclProtocol>,
    /// `NCCL_MIN_NCHANNELS` and `NCCL_MAX_NCHANNELS` together.
    pub channels: Option<u32>,
}

/// Channels that any version can have (`MAXCHANNELS`, 64 from 2.25).
pub(super) const MOST_CHANNELS: u32 = 64;

impl FromStr for Request {
    type Err = String;

    /// Reads what follows `library:nccl`: `@VERSION`, then after colons an algorithm, a protocol and a number of
    /// channels, in this order, each of which may be left out.
    fn from_str(text: &str) -> Result<Request, String> {
        let mut request = Request::default();
        let mut words = text.split(':');
        match words.next().unwrap_or_default() {
            "" => {}
            first => {
                let version = first.strip_prefix('@').ok_or_else(|| form(first))?;
                request.version = version.parse()?;
            }
        }
        let mut stage = 0;
        for word in words {
            let method = word.parse::<Method>().ok().filter(|_| stage < 1);
            let protocol = word.parse::<NcclProtocol>().ok().filter(|_| stage < 2);
            let channels = word.parse::<u32>().ok().filter(|_| stage < 3);
            stage = match (method, protocol, channels) {
                (Some(_), _, _) => {
                    request.method = method;
                    1
                }
                (_, Some(_), _) => {
                    request.protocol = protocol;
                    2
                }
                (_, _, Some(0)) => return Err("0 channels carry nothing: use at least 1".to_owned()),
                (_, _, Some(count)) if count > MOST_CHANNELS => {
                    return Err(format!("{count} channels are more than NCCL can have: use at most {MOST_CHANNELS}"));
                }
                (_, _, Some(_)) => {
                    request.channels = channels;
                    3
                }
                _ => return Err(form(word)),
            };
        }
        let simple_only = matches!(request.method, Some(Method::Nvls | Method::NvlsTree));
        if simple_only && !matches!(request.protocol, None | Some(NcclProtocol::Simple)) {
            return Err("NVLS has the protocol simple alone: leave the protocol out".to_owned());
        }
        Ok(request)
    }
}

/// The error message for a word that does not belong there.
fn form(word: &str) -> String {
    format!(
        "`{word}` does not belong here: write @VERSION, then :ALGORITHM ({}), :PROTOCOL ({}) and :CHANNELS in this order, each if \
         wanted, as in library:nccl@2.27:tree:ll128:8",
        Method::ALL.map(Method::name).join(", "),
        NcclProtocol::ALL.map(NcclProtocol::name).join(", ")
    )
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.version != Version::default() {
            write!(f, "@{}", self.version)?;
        }
        if let Some(method) = self.method {
            write!(f, ":{method}")?;
        }
        if let Some(protocol) = self.protocol {
            write!(f, ":{protocol}")?;
        }
        self.channels.map_or(Ok(()), |channels| write!(f, ":{channels}"))
    }
}
