//! What a role may do in a workspace.

use store::identity::Role;
use types::Scope;
use types::Verb::{Create, Delete, Invite, Remove, Share, Update};

/// Returns true if a role allows what needs `scope`. Admins may do everything; members work with
/// the workloads and read the rest.
pub const fn allows(role: Role, scope: Scope) -> bool {
    matches!(role, Role::Admin) || !admin_only(scope)
}

/// Returns true for settings of the workspace, its people, and whatever reaches beyond it.
const fn admin_only(scope: Scope) -> bool {
    matches!(
        scope,
        Scope::Admin
            | Scope::CustomDomains(Create | Delete | Update)
            | Scope::Images(Share)
            | Scope::Integrations(Create | Delete | Update)
            | Scope::Policies(Create | Delete | Update)
            | Scope::Workspaces(Delete | Invite | Remove | Update)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything a member may not do. All other scopes must be allowed, so that a new scope is a
    /// decision made here.
    const REFUSED: &[&str] = &[
        "admin",
        "customdomains:create",
        "customdomains:delete",
        "customdomains:update",
        "images:share",
        "integrations:create",
        "integrations:delete",
        "integrations:update",
        "policies:create",
        "policies:delete",
        "policies:update",
        "workspaces:delete",
        "workspaces:invite",
        "workspaces:remove",
        "workspaces:update",
    ];

    #[test]
    fn members_do_everything_but_administer() {
        for scope in Scope::ALL {
            assert!(allows(Role::Admin, *scope));
            let refused = REFUSED.contains(&scope.to_string().as_str());
            assert_eq!(allows(Role::Member, *scope), !refused, "{scope}");
        }
        assert!(REFUSED.iter().all(|name| Scope::parse(name).is_some()));
    }
}
