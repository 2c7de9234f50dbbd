//! Policies that say where, and on what resources, workloads may run. Of the policies of one type,
//! it is enough if one allows the place; if there are several types, each type must allow it.

use crate::context::Context;
use crate::engine::Held;
use crate::error::Error;
use store::Tx;
use types::Problems;
use types::kinds::Policy;
use types::kinds::policy::{LocationType, PolicyLocation, PolicyResourceType, PolicyType};
use types::parts::{Flavor, FlavorType};
use types::wire::Region;

/// The workload that is to be placed.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'p> {
    /// Its type as policies name it; `None` for kinds that policies cannot name.
    pub(crate) resource: Option<PolicyResourceType>,
    /// The region it is to run in. Without one it may run in any region of this installation.
    pub(crate) region: Option<&'p str>,
    /// The flavors it asks to run on. Without any, it takes what there is.
    pub(crate) flavors: &'p [Flavor],
}

/// Returns the flavors that workloads here run on.
pub fn flavors_here() -> Vec<Flavor> {
    vec![Flavor { name: Some("x86".into()), kind: Some(FlavorType::Cpu) }]
}

/// Refuses a placement that the policies named in a wish do not allow.
pub(crate) fn require(
    context: &Context,
    tx: &mut Tx<'_>,
    policies: &[String],
    what: Placed<'_>,
) -> Result<(), Error> {
    let mut named = Vec::new();
    for name in policies {
        if let Some(held) = Held::<Policy>::find(context, tx, &[], name)?
            && what.resource.map_or_else(
                || held.wish.spec.resource_types.as_deref().unwrap_or_default().is_empty(),
                |resource| held.wish.spec.concerns(resource),
            )
        {
            named.push(held.wish);
        }
    }
    Ok(judge(&named, &context.control.settings.regions, what).into_result()?)
}

fn judge(policies: &[Policy], regions: &[Region], what: Placed<'_>) -> Problems {
    let of = |kind| policies.iter().filter(move |policy| policy.spec.kind == Some(kind));
    let mut problems = Problems::default();
    let locations: Vec<_> = of(PolicyType::Location)
        .flat_map(|policy| policy.spec.locations.iter().flatten())
        .collect();
    if !locations.is_empty() {
        let mut may = regions.iter().filter(|region| {
            what.region.is_none_or(|wanted| region.name.as_deref() == Some(wanted))
        });
        let allowed = may.any(|region| locations.iter().any(|it| has(it, region)));
        let names = listed(of(PolicyType::Location));
        let place = match what.region {
            Some(region) => format!("the region `{region}` is"),
            None => "no region of this installation is".to_owned(),
        };
        let verb = if what.region.is_some() { "not among" } else { "among" };
        let why = format!("{place} {verb} the locations that {names} allows");
        problems.require(allowed, "spec.policies", why);
    }
    let flavors: Vec<_> =
        of(PolicyType::Flavor).flat_map(|policy| policy.spec.flavors.iter().flatten()).collect();
    if !flavors.is_empty() {
        let here = flavors_here();
        let wanted = if what.flavors.is_empty() { here.as_slice() } else { what.flavors };
        // It is enough if one of the flavors asked for is allowed.
        let allowed = wanted.iter().any(|it| flavors.iter().any(|allowed| is_of(it, allowed)));
        let names = listed(of(PolicyType::Flavor));
        let shown: Vec<_> = wanted.iter().filter_map(|it| it.name.as_deref()).collect();
        let why = format!("{names} allows no flavor that it could run on: {}", shown.join(", "));
        problems.require(allowed, "spec.policies", why);
    }
    problems
}

fn listed<'p>(policies: impl Iterator<Item = &'p Policy>) -> String {
    let names: Vec<_> = policies.map(|policy| format!("`{}`", policy.metadata.name)).collect();
    format!("the policy {}", names.join(" or "))
}

fn has(location: &PolicyLocation, region: &Region) -> bool {
    let name = location.name.as_deref().unwrap_or_default();
    let is = |value: &Option<String>| {
        value.as_deref().is_some_and(|value| value.eq_ignore_ascii_case(name))
    };
    match location.kind {
        Some(LocationType::Location) => is(&region.location) || is(&region.name),
        Some(LocationType::Country) => is(&region.country),
        Some(LocationType::Continent) => is(&region.continent),
        None => false,
    }
}

fn is_of(wanted: &Flavor, allowed: &Flavor) -> bool {
    let same_kind = match (wanted.kind, allowed.kind) {
        (Some(wanted), Some(allowed)) => wanted == allowed,
        _ => true,
    };
    same_kind && wanted.name == allowed.name
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(name: &str, spec: Value) -> Policy {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn location(name: &str, kind: &str, place: &str) -> Policy {
        let locations = json!([{"type": kind, "name": place}]);
        policy(name, json!({"type": "location", "locations": locations}))
    }

    fn flavor(name: &str, flavor: &str, kind: &str) -> Policy {
        let flavors = json!([{"name": flavor, "type": kind}]);
        policy(name, json!({"type": "flavor", "flavors": flavors}))
    }

    fn regions() -> Vec<Region> {
        let region = |name: &str, country: &str, continent: &str| Region {
            name: Some(name.into()),
            country: Some(country.into()),
            continent: Some(continent.into()),
            ..Region::default()
        };
        vec![region("bonn", "de", "eu"), region("reno", "us", "na")]
    }

    fn judged(policies: &[Policy], region: Option<&str>, flavors: &[Flavor]) -> Option<String> {
        let resource = Some(PolicyResourceType::Agent);
        let problems = judge(policies, &regions(), Placed { resource, region, flavors });
        problems.into_result().err().map(|problems| problems.to_string())
    }

    #[test]
    fn of_one_type_any_policy_is_enough_and_of_several_each_must_allow() {
        let (eu, us) = (location("eu", "continent", "EU"), location("us", "country", "us"));
        let (x86, gpu) = (flavor("x86", "x86", "cpu"), flavor("t4", "t4", "gpu"));
        assert_eq!(judged(&[], Some("reno"), &[]), None);
        assert_eq!(judged(std::slice::from_ref(&eu), Some("bonn"), &[]), None);
        assert_eq!(judged(&[eu.clone(), us.clone()], Some("reno"), &[]), None, "the union");
        let why = judged(std::slice::from_ref(&eu), Some("reno"), &[]).unwrap();
        assert!(why.contains("`reno` is not among") && why.contains("`eu`"), "{why}");
        assert_eq!(judged(&[eu.clone(), x86.clone()], Some("bonn"), &[]), None);
        assert!(
            judged(&[eu.clone(), gpu.clone()], Some("bonn"), &[]).is_some(),
            "the intersection"
        );
        assert!(judged(&[eu.clone(), x86.clone()], Some("reno"), &[]).is_some());
        assert_eq!(judged(&[x86, gpu.clone()], Some("reno"), &[]), None);
        // Without a region of its own it may run in any region of the installation.
        assert_eq!(judged(&[us], None, &[]), None);
        assert!(judged(&[location("asia", "continent", "as")], None, &[]).is_some());
        let t4 = Flavor { name: Some("t4".into()), kind: Some(FlavorType::Gpu) };
        assert_eq!(judged(&[gpu], None, &[t4]), None);
        assert_eq!(judged(&[location("b", "location", "bonn")], Some("bonn"), &[]), None);
    }

    #[test]
    fn limits_of_tokens_say_nothing_of_places() {
        let tokens = policy("t", json!({"type": "maxToken", "maxTokens": {"total": 1}}));
        assert_eq!(judged(&[tokens], Some("reno"), &[]), None);
    }
}
