//! Telling instances the rules of their way out.

use crate::control::Control;
use crate::error::Error;
use crate::machine::Machine;
use std::sync::Arc;
use std::time::Duration;
use types::egress::EgressRules;
use types::instance::InstanceName;

/// A process in the instance may keep the machine waiting, and must not keep others waiting too.
const TELLING_MAX: Duration = Duration::from_secs(10);
/// Pause after the machine failed to do it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Makes an instance keep rules.
pub(crate) async fn tell(
    machine: &dyn Machine,
    instance: &InstanceName,
    rules: EgressRules,
) -> Result<(), Error> {
    let told = tokio::time::timeout(TELLING_MAX, machine.set_egress(instance, rules)).await;
    let fault = match told {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(fault)) => fault.to_string(),
        Err(_) => "the machine did not do it in time".to_owned(),
    };
    tracing::error!(fault, %instance, "an instance could not be told its rules of egress");
    Err(Error::Egress(fault))
}

/// Makes an instance that an earlier run of this program launched keep its rules again. Until then
/// the machine lets nothing out that rules could forbid.
pub(crate) async fn tell_again(machine: &dyn Machine, instance: &InstanceName, rules: EgressRules) {
    while rules != EgressRules::default()
        && machine.runs(instance)
        && tell(machine, instance, rules.clone()).await.is_err()
    {
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Like [`tell_again`], in the background.
pub(crate) fn keep_to(
    control: &Control,
    machine: Arc<dyn Machine>,
    instance: InstanceName,
    rules: EgressRules,
) {
    let ending = control.workloads.ending();
    let told = async move { tell_again(&*machine, &instance, rules).await };
    control.workloads.tasks.spawn(async move { ending.run_until_cancelled(told).await });
}
