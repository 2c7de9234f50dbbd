//! Sets of scopes.

use std::fmt;
use types::Scope;

/// The scopes of a token: one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeSet(u128);

const _: () = assert!(Scope::ALL.len() <= 128);

/// Scopes that OAuth libraries request by habit; they have no effect here.
const TOLERATED: [&str; 5] = ["openid", "offline_access", "profile", "email", "address"];

impl ScopeSet {
    /// Returns the scope `admin`, which satisfies all others. The subject's role still limits what
    /// it may do.
    pub fn everything() -> Self {
        [Scope::Admin].into_iter().collect()
    }

    /// Reads the `scope` parameter. An empty one means everything; an unknown scope is returned as
    /// the error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for name in text.split_ascii_whitespace().filter(|name| !TOLERATED.contains(name)) {
            set = set.with(Scope::parse(name).ok_or_else(|| name.to_owned())?);
        }
        Ok(if set == Self::default() { Self::everything() } else { set })
    }

    fn with(self, scope: Scope) -> Self {
        Self(self.0 | bit(scope))
    }

    fn holds(self, scope: Scope) -> bool {
        self.0 & bit(scope) != 0
    }

    /// Returns true if the set allows what needs `scope`.
    pub fn satisfies(self, scope: Scope) -> bool {
        self.holds(Scope::Admin) || self.holds(scope)
    }

    /// Returns true if `self` allows nothing that `other` does not.
    pub fn within(self, other: Self) -> bool {
        self.iter().all(|scope| other.satisfies(scope))
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.holds(*scope))
    }
}

/// Returns the bit of a scope, which is its place among all. A scope that does not exist has none.
fn bit(scope: Scope) -> u128 {
    Scope::ALL.iter().position(|known| *known == scope).map_or(0, |place| 1 << place)
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::default(), Self::with)
    }
}

/// Writes the `scope` parameter and claim: names separated by spaces.
impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{scope}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::Verb;

    #[test]
    fn nothing_asked_is_everything_and_habits_are_tolerated() {
        assert_eq!(ScopeSet::parse("").unwrap(), ScopeSet::everything());
        assert_eq!(ScopeSet::parse("openid offline_access").unwrap(), ScopeSet::everything());
        assert_eq!(ScopeSet::parse("jobs:get nonsense").unwrap_err(), "nonsense");
    }

    #[test]
    fn a_narrow_scope_is_within_a_wide_one_only() {
        let narrow = ScopeSet::parse("jobs:get").unwrap();
        assert!(narrow.within(ScopeSet::everything()) && !ScopeSet::everything().within(narrow));
        assert!(
            narrow.satisfies(Scope::Jobs(Verb::Get))
                && !narrow.satisfies(Scope::Jobs(Verb::Update))
        );
    }

    proptest! {
        #[test]
        fn a_set_reads_back_as_written(picks in proptest::collection::vec(0..Scope::ALL.len(), 1..20)) {
            let set: ScopeSet = picks.into_iter().map(|index| Scope::ALL[index]).collect();
            prop_assert_eq!(ScopeSet::parse(&set.to_string()).unwrap(), set);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            let _ = ScopeSet::parse(&text);
        }
    }
}
