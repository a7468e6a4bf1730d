//! `belljar tenants`: who shares a server, and what each may use.

use belljar_api::v1;
use belljar_codes::Code;
use belljar_policy::limits::{format_bytes, parse_cpus, parse_disk, parse_memory};
use belljar_policy::{Invalid, TenantId, shown};
use serde::Serialize;

use super::Done;
use crate::args::{TenantArgs, TenantsArgs, TenantsCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, print, print_json};

pub(crate) async fn tenants(context: &Context, args: TenantsArgs) -> Result<Done, Failure> {
    match args.command {
        TenantsCommand::Create(args) => create(context, args).await,
        TenantsCommand::List { json } => list(context, json).await,
        TenantsCommand::Show { tenant, json } => show(context, tenant, json).await,
        TenantsCommand::Set(args) => set(context, args).await,
        TenantsCommand::Rm { tenant, json } => remove(context, tenant, json).await,
    }
}

async fn create(context: &Context, args: TenantArgs) -> Result<Done, Failure> {
    TenantId::parse(&args.tenant)?;
    let quotas = apply(&args, v1::Quotas::default())?;
    let request = v1::CreateTenantRequest { tenant: args.tenant, quotas: Some(quotas) };
    let tenant = context
        .with_client(async |mut client| Ok(client.system.create_tenant(request).await?))
        .await?;
    tell(&tenant.into_inner(), args.json)
}

async fn set(context: &Context, args: TenantArgs) -> Result<Done, Failure> {
    // What is wrong with the words is found before a server is looked for.
    apply(&args, v1::Quotas::default())?;
    let tenant = context
        .with_client(async |mut client| {
            let known = v1::GetTenantRequest { tenant: args.tenant.clone() };
            let known = client.system.get_tenant(known).await?.into_inner();
            let quotas = apply(&args, known.quotas.unwrap_or_default())?;
            let request =
                v1::SetQuotasRequest { tenant: args.tenant.clone(), quotas: Some(quotas) };
            Ok(client.system.set_quotas(request).await?)
        })
        .await?;
    tell(&tenant.into_inner(), args.json)
}

async fn show(context: &Context, tenant: String, json: bool) -> Result<Done, Failure> {
    let request = v1::GetTenantRequest { tenant };
    let tenant = context
        .with_client(async |mut client| Ok(client.system.get_tenant(request).await?))
        .await?;
    tell(&tenant.into_inner(), json)
}

async fn list(context: &Context, json: bool) -> Result<Done, Failure> {
    let tenants = context
        .with_client(async |mut client| {
            Ok(client.system.list_tenants(v1::ListTenantsRequest {}).await?)
        })
        .await?
        .into_inner()
        .tenants;
    if json {
        print_json(&tenants)?;
    } else {
        print(&render(&tenants))?;
    }
    Ok(Done::Success)
}

#[derive(Serialize)]
struct Removed {
    removed: String,
}

async fn remove(context: &Context, tenant: String, json: bool) -> Result<Done, Failure> {
    let request = v1::RemoveTenantRequest { tenant: tenant.clone() };
    context.with_client(async |mut client| Ok(client.system.remove_tenant(request).await?)).await?;
    if json {
        print_json(&Removed { removed: tenant })?;
    }
    Ok(Done::Success)
}

fn tell(tenant: &v1::Tenant, json: bool) -> Result<Done, Failure> {
    if json {
        print_json(tenant)?;
    } else {
        print(&render(std::slice::from_ref(tenant)))?;
    }
    Ok(Done::Success)
}

/// `quotas`, with what was given put in its place.
fn apply(args: &TenantArgs, quotas: v1::Quotas) -> Result<v1::Quotas, Failure> {
    let cpus = |text: &str| parse_cpus(text).map(u64::from);
    Ok(v1::Quotas {
        sandboxes: quota(&args.sandboxes, quotas.sandboxes, number)?,
        memory_bytes: quota(&args.memory, quotas.memory_bytes, parse_memory)?,
        milli_cpus: quota(&args.cpus, quotas.milli_cpus, cpus)?,
        disk_bytes: quota(&args.disk, quotas.disk_bytes, parse_disk)?,
        processes: quota(&args.processes, quotas.processes, number)?,
        requests_per_second: quota(&args.requests_per_second, quotas.requests_per_second, number)?,
    })
}

fn quota(
    word: &Option<String>,
    before: Option<u64>,
    parse: impl FnOnce(&str) -> Result<u64, Invalid>,
) -> Result<Option<u64>, Failure> {
    match word.as_deref() {
        None => Ok(before),
        Some("none") => Ok(None),
        Some(text) => Ok(Some(parse(text)?)),
    }
}

fn number(text: &str) -> Result<u64, Invalid> {
    text.parse().map_err(|_| {
        Invalid::new(
            Code::InvalidLimit,
            format!("`{}` is not a number", shown(text)),
            "use a whole number, or `none`",
        )
    })
}

fn render(tenants: &[v1::Tenant]) -> String {
    let heading = ["TENANT", "SANDBOXES", "MEMORY", "CPUS", "DISK", "PROCESSES", "REQUESTS/S"];
    let mut table = Table::new(&heading);
    for tenant in tenants {
        let (limit, used) = (tenant.quotas.unwrap_or_default(), tenant.usage.unwrap_or_default());
        let plain = |value: u64| value.to_string();
        let cpus = |millis: u64| format!("{}", millis as f64 / 1000.0);
        table.row([
            tenant.tenant.clone(),
            of(used.sandboxes, limit.sandboxes, plain),
            of(used.memory_bytes, limit.memory_bytes, format_bytes),
            of(used.milli_cpus, limit.milli_cpus, cpus),
            of(used.disk_bytes, limit.disk_bytes, format_bytes),
            of(used.processes, limit.processes, plain),
            limit.requests_per_second.map_or_else(|| "-".to_owned(), plain),
        ]);
    }
    table.render(0)
}

/// What is used, of what may be.
fn of(used: Option<u64>, limit: Option<u64>, shown: impl Fn(u64) -> String) -> String {
    let used = shown(used.unwrap_or(0));
    limit.map_or_else(|| used.clone(), |limit| format!("{used} of {}", shown(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_stays_and_none_takes_away() {
        let check = |word: Option<&str>, expected: Option<Option<u64>>| {
            let found = quota(&word.map(str::to_owned), Some(7), number).ok();
            assert_eq!(found, expected, "{word:?}");
        };
        check(None, Some(Some(7)));
        check(Some("none"), Some(None));
        check(Some("9"), Some(Some(9)));
        check(Some("-1"), None);
        check(Some("many"), None);
    }
}
