//! Addresses of what workspaces serve: a host of its own for each preview and application, or a
//! path where the server has no name that hosts could be below.
//!
//! `content_url` is the address at which such content is reached. It never shares an origin with
//! the server's own pages: hosts below a name are origins of their own, and a server without a name
//! uses another port.

const LOCALHOST: &str = "localhost";

/// Returns true if everybody can find hosts below the host of this address, that is, if it is a
/// name and not a bare address.
pub fn has_hosts(url: &str) -> bool {
    let (_, host, _) = parts(url);
    host != LOCALHOST && ip(host).is_none()
}

/// Returns the same host with this scheme and port.
pub fn with_port(scheme: &str, url: &str, port: u16) -> String {
    let (_, host, _) = parts(url);
    format!("{scheme}://{host}:{port}")
}

/// Returns the address of the host with `label` in front of the name of `content_url`.
pub fn host_url(content_url: &str, label: &str) -> String {
    let (scheme, host, port) = parts(content_url);
    // Hosts below `localhost` work in browsers; below an IP address there are none.
    match ip(host) {
        Some(ip) if ip.is_loopback() => format!("{scheme}://{label}.localhost{port}"),
        Some(_) => format!("{scheme}://{host}{port}/-/{label}"),
        None => format!("{scheme}://{label}.{host}{port}"),
    }
}

/// Returns the target of the user's DNS records for custom domains: a host below the server's own,
/// or the server's address if it has no name.
pub fn record_target(public_url: &str, label: &str) -> String {
    let (_, host, _) = parts(public_url);
    match ip(host) {
        Some(ip) if ip.is_loopback() => format!("{label}.localhost"),
        Some(ip) => ip.to_string(),
        None => format!("{label}.{host}"),
    }
}

/// Returns the address of a preview.
pub fn preview_url(content_url: &str, label: &str) -> String {
    findable_url(content_url, &format!("{label}.preview"))
}

/// Returns an address like [`host_url`], but one that every program can find. A server without a
/// name gets a path, even if it serves only this machine, because programs rarely find hosts below
/// `localhost`. Browsers do find them, and the data plane redirects them from that path to the
/// host.
pub fn findable_url(content_url: &str, label: &str) -> String {
    let (scheme, host, port) = parts(content_url);
    match has_hosts(content_url) {
        true => host_url(content_url, label),
        false => format!("{scheme}://{host}{port}/-/{label}"),
    }
}

/// Returns the address of a host below a custom domain, whose records lead to the server's own
/// host: callers find it at the same port.
pub fn custom_url(public_url: &str, host: &str) -> String {
    let (scheme, _, port) = parts(public_url);
    format!("{scheme}://{host}{port}")
}

/// Splits an address into scheme, host, and port with its colon.
fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let rest = rest.trim_end_matches('/');
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match rest.rfind(':').filter(|colon| is_port(&rest[colon + 1..])) {
        Some(colon) => (scheme, &rest[..colon], &rest[colon..]),
        None => (scheme, rest, ""),
    }
}

fn ip(host: &str) -> Option<std::net::IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{custom_url, has_hosts, host_url, preview_url, record_target, with_port};

    #[test]
    fn only_names_have_hosts_below_them() {
        assert!(has_hosts("https://holm.example.com:8443/"));
        for bare in [
            "http://localhost:8700",
            "http://127.0.0.1",
            "http://[2001:db8::7]:8080/",
            "https://10.0.0.7",
        ] {
            assert!(!has_hosts(bare), "{bare}");
        }
        assert_eq!(with_port("http", "http://[::1]:8700", 8701), "http://[::1]:8701");
    }

    #[test]
    fn a_host_is_put_in_front_where_hosts_can_be() {
        assert_eq!(host_url("https://holm.example.com", "a"), "https://a.holm.example.com");
        assert_eq!(host_url("http://localhost:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://127.0.0.1:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://[::1]:8080", "a"), "http://a.localhost:8080");
        assert_eq!(host_url("http://10.0.0.7:8080", "a"), "http://10.0.0.7:8080/-/a");
    }

    #[test]
    fn records_name_no_ports() {
        assert_eq!(
            record_target("https://holm.example.com:8443/", "domains"),
            "domains.holm.example.com"
        );
        assert_eq!(record_target("http://127.0.0.1:8080", "domains"), "domains.localhost");
        assert_eq!(record_target("http://[2001:db8::7]:8080", "domains"), "2001:db8::7");
    }

    #[test]
    fn a_custom_host_answers_where_the_server_does() {
        assert_eq!(custom_url("http://10.0.0.7:8700/", "a.example"), "http://a.example:8700");
        assert_eq!(custom_url("https://[::1]:8443", "a.example"), "https://a.example:8443");
        assert_eq!(custom_url("https://holm.example.com", "a.example"), "https://a.example");
    }

    #[test]
    fn a_preview_is_found_by_programs_on_this_machine() {
        assert_eq!(preview_url("http://127.0.0.1:8080", "a"), "http://127.0.0.1:8080/-/a.preview");
        assert_eq!(preview_url("http://[::1]:8080/", "a"), "http://[::1]:8080/-/a.preview");
        assert_eq!(preview_url("http://localhost", "a"), "http://localhost/-/a.preview");
        assert_eq!(preview_url("http://10.0.0.7:8080", "a"), "http://10.0.0.7:8080/-/a.preview");
        assert_eq!(
            preview_url("https://holm.example.com", "a"),
            "https://a.preview.holm.example.com"
        );
    }
}
