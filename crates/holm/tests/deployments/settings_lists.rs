//! Settings of what the server remembers about deployments, and of the processor time that they
//! start with.

use crate::place::{Client, Place, eventually};
use crate::settings::{end, start};
use crate::settings_served::deploy;
use crate::tools::until;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Answers each request for the list of tools with a description as long as its `size`.
const LISTS: &str = r##"cat > /srv.sh <<'END'
while read -r line; do
    line=$(printf %s "$line" | tr -d '\r')
    [ -n "$line" ] || break
    case $line in [Cc]ontent-[Ll]ength:*) n=${line#*: };; esac
done
size=$(head -c "$n" | sed 's/.*"size":\([0-9]*\).*/\1/')
pad=$(head -c "$size" /dev/zero | tr '\0' x)
out='{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","description":"'$pad'"}]}}'
head='HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n'
printf "${head}Content-Length: %s\r\n\r\n%s" ${#out} "$out"
END
exec nc -ll -p $PORT -e sh /srv.sh"##;
/// Length of a list without its description.
const AROUND: usize = r#"{"tools":[{"name":"t","description":""}]}"#.len();
const MINUTE: Duration = Duration::from_secs(60);

/// Asks for a list with a description of this size.
fn ask(client: &Client, size: usize, more: &str) {
    let params = json!({"size": size, "more": more});
    let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
    let answer = client.done("POST", "/main/functions/tools/mcp", Some(&asked));
    assert_eq!(
        answer["result"]["tools"][0]["description"].as_str().map(str::len),
        Some(size),
        "{answer}"
    );
}

/// Returns how many bytes of lists are kept.
fn kept(client: &Client) -> usize {
    let metrics = client.done("GET", "/metrics", None);
    let text = metrics.as_str().unwrap();
    let found = text.lines().find_map(|line| {
        line.strip_prefix(r#"holm_admission_held{resource="bytes of lists of tools"} "#)
    });
    found.map_or(0, |held| held.parse().unwrap())
}

#[test]
fn lists_of_tools_are_kept_as_far_as_the_settings_say() {
    let padding = "x".repeat(3000);
    // Sizes of the requested lists, with extra text in the requests.
    let asked = [(20_000, ""), (10_000, padding.as_str()), (12_000, ""), (8_000, "")];
    for (setting, wanted) in [
        ("", &[20_000, 10_000, 12_000, 8_000][..]),
        ("tool_list_bytes_max = 15000", &[10_000, 12_000, 8_000]),
        ("tool_list_request_bytes_max = 1000", &[20_000, 12_000, 8_000]),
        // The least recently used list makes room. While one is being copied, space is taken in
        // steps of 16 KiB.
        ("tool_lists_bytes_max = 40000", &[10_000, 12_000, 8_000]),
        ("tool_lists_workspace_bytes_max = 40000", &[10_000, 12_000, 8_000]),
    ] {
        let here = start(&format!("[gateway]\n{setting}"));
        let client = &here.2;
        deploy(client, "functions", "tools", LISTS, &json!({"minScale": 1}));
        eventually("it serves", || {
            client.done("GET", "/v0/functions/tools", None)["status"] == "DEPLOYED"
        });
        for (size, more) in asked {
            ask(client, size, more);
        }
        let wanted: usize = wanted.iter().map(|size| size + AROUND).sum();
        // The client sees the end of the answer before the server has kept it.
        let mut found = 0;
        let until = Instant::now() + Duration::from_secs(10);
        while found != wanted && Instant::now() < until {
            found = kept(client);
        }
        assert_eq!(found, wanted, "{setting}");
        end(here);
    }
}

/// Returns the requests in a time window that goes back far enough.
fn counted(client: &Client, from: &str) -> Value {
    let query = format!("resourceType=agents&workloadIds=a&start={from}");
    let answer = client.done("GET", &format!("/v0/observability/requests?{query}"), None);
    answer["a"]["count"].clone()
}

#[test]
fn requests_are_remembered_for_as_long_as_the_settings_say() {
    let here = start("[gateway]\nrequest_history = \"1m\"");
    let client = &here.2;
    let command = "echo up; exec httpd -f -p $PORT -h /etc";
    deploy(client, "agents", "a", command, &json!({}));
    let from = until(client, "a", "DEPLOYED")["metadata"]["createdAt"].as_str().unwrap().to_owned();
    client.done("GET", "/main/agents/a/passwd", None);
    assert_eq!(counted(client, &from), 1);
    // In a different minute, whenever this one began.
    std::thread::sleep(MINUTE);
    client.done("GET", "/main/agents/a/passwd", None);
    assert_eq!(counted(client, &from), 1, "the first is forgotten");
    end(here);
}

/// Returns the microseconds of processor time per tenth of a second that the only instance may use.
fn quota(place: &Place) -> Option<u64> {
    let groups = place.groups();
    let [group] = groups.as_slice() else { return None };
    let one = std::fs::read_to_string(group.join("cpu.max"));
    let text = one.or_else(|_| {
        let group = group.strip_prefix("/sys/fs/cgroup").unwrap();
        let inner: std::path::PathBuf = group.components().skip(1).collect();
        let controller = Path::new("/sys/fs/cgroup/cpu").join(inner);
        std::fs::read_to_string(controller.join("cpu.cfs_quota_us"))
    });
    text.ok()?.split_whitespace().next()?.parse().ok()
}

#[test]
fn a_replica_starts_with_as_much_processor_as_the_settings_say() {
    let here = start("[deployments]\nstart_millicores = 1700");
    let (place, _, client) = &here;
    let command = "until [ -e /go ]; do sleep 0.1; [ -z \"$WAITS\" ] || continue; touch /go; done; exec httpd -f -p $PORT -h /";
    let waits = json!([{"name": "COMMAND", "value": command}, {"name": "PATH", "value": "/bin"},
        {"name": "WAITS", "value": "yes"}]);
    deploy(client, "agents", "waits", "", &json!({"envs": waits}));
    eventually("it starts with that much", || quota(place) == Some(170_000));
    client.done("DELETE", "/v0/agents/waits", None);
    eventually("it is gone", || place.groups().is_empty());
    deploy(client, "agents", "serves", command, &json!({}));
    until(client, "serves", "DEPLOYED");
    eventually("it has less later", || quota(place).is_some_and(|quota| quota < 100_000));
    end(here);
}
