//! Checks of the names of regions.

use crate::config::Config;
use crate::config::error::{Wrong, wrong};

const REGIONS: &str = "placement.regions";

pub(super) fn regions(config: &Config) -> Result<(), Wrong> {
    let regions = &config.placement.regions;
    if regions.is_empty() {
        return wrong(REGIONS, "is empty: name at least one region");
    }
    for (at, region) in regions.iter().enumerate() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if region.name.is_empty() || !region.name.chars().all(plain) {
            return wrong(
                REGIONS,
                format!(
                    "has the name `{}`: use lower-case letters, digits and hyphens",
                    region.name
                ),
            );
        }
        if regions.iter().take(at).any(|other| other.name == region.name) {
            return wrong(REGIONS, format!("has `{}` twice", region.name));
        }
    }
    Ok(())
}

/// Returns names that are valid but most likely a mistake.
pub(super) fn doubts(config: &Config) -> Vec<Wrong> {
    let regions = config.placement.regions.iter().filter(|region| is_elsewhere(&region.name));
    let message = |name: &str| {
        format!(
            "has `{name}`, which looks like a region of the hosted service: published clients with HTTP/2 send requests \
             for such regions, with their credentials, there and not here; choose a name of your own, such as `berlin`"
        )
    };
    regions.map(|region| Wrong::new(REGIONS, message(&region.name))).collect()
}

/// True if a region is named `auto` or looks like `us-pdx-1`, as those of the hosted service do.
fn is_elsewhere(region: &str) -> bool {
    let letters = |part: &str, count| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match region.split('-').collect::<Vec<_>>().as_slice() {
        ["auto"] => true,
        [area, city, number] => letters(area, 2) && letters(city, 3) && is_number(number),
        _ => false,
    }
}
