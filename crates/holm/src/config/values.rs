//! Values that several sections have: texts that may be empty, addresses, paths.

use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

pub(super) fn text_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

pub(super) fn address_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    text_or_none(deserializer)?.map(|text| parse_address(&text)).transpose()
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse_address(&String::deserialize(deserializer)?)
}

fn parse_address<E: serde::de::Error>(text: &str) -> Result<SocketAddr, E> {
    text.parse().map_err(|_| {
        E::custom(format!("`{text}` is no IP address with a port, such as 127.0.0.1:8700"))
    })
}

pub(super) fn path_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    Ok(text_or_none(deserializer)?.map(PathBuf::from))
}

/// Address of a DNS server, with a port if that is not 53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct NameServer(pub(crate) SocketAddr);

impl TryFrom<String> for NameServer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const PORT: u16 = 53;
        let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
        let address = address.or_else(|_| text.parse());
        address
            .map(Self)
            .map_err(|_| format!("`{text}` is no address such as 192.0.2.53 or 192.0.2.53:5353"))
    }
}
