//! Access keys: given ones, and the temporary ones of a role on EC2, ECS and EKS, which are renewed before they expire.
//!
//! Places and variables are those of <https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html>.
//! docs/DESIGN-NOTES.md says why no crate does this.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use inputs::files::{self, DEFINITION};
use jiff::Timestamp;
use network::limits::{self, BodyLimit};
use network::{RedirectError, is_loopback, read_body, read_start};
use reqwest::RequestBuilder;
use url::{Url, form_urlencoded};

use crate::secret::{ConfigError, Secret};
use crate::wire::{Resolver, element};

/// An access key of an S3 server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessKey {
    /// The access key id.
    pub id: String,
    /// The secret; never printed.
    pub secret: Secret,
    /// The token of temporary keys.
    pub token: Option<Secret>,
    /// Where it was found.
    pub source: String,
}

impl AccessKey {
    /// Whether id and token can be in a header.
    pub(crate) fn is_valid(&self) -> bool {
        let is_header = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        is_header(&self.id) && self.token.as_ref().is_none_or(|token| is_header(&token.0))
    }
}

/// Where the keys are from that requests are signed with.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// One key.
    Key(AccessKey),
    /// The temporary keys of a role. Clones share the newest.
    Role(Arc<RoleKeys>),
    /// A directory needs none.
    None,
}

/// How long before its end a key is renewed.
const RENEWAL: Duration = Duration::from_secs(300);

/// The least time between two renewals of a key that is still valid, or a quarter of what is left if that is less.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// How long a failure without a valid key is repeated to other requests.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// How long it may take to get a key, with all requests.
const FETCH_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// The waits before a request is repeated that a busy service refused.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The hosts that give keys over plain HTTP, beside this machine: EC2's, ECS's, and EKS's.
const METADATA_HOSTS: [&str; 5] =
    ["169.254.169.254", "[fd00:ec2::254]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// The temporary keys of a role.
#[derive(Debug)]
pub struct RoleKeys {
    service: KeyService,
    state: Mutex<KeyState>,
    /// Held while a key is fetched.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KeyState {
    newest: Option<TemporaryKey>,
    attempted: Option<Instant>,
    failure: Option<KeyError>,
}

#[derive(Clone, Debug)]
struct TemporaryKey {
    key: AccessKey,
    expires: Timestamp,
}

/// Why there is no key. It holds nothing that a service answered, except codes of errors.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{place} gave no access key: {reason}")]
pub struct KeyError {
    place: String,
    reason: String,
    /// Advice for the user.
    pub(crate) fix: &'static str,
}

/// The service that gives the keys of a role.
#[derive(Debug)]
enum KeyService {
    /// `AssumeRoleWithWebIdentity` of the security token service: IAM roles for service accounts of EKS, and others.
    WebIdentity { endpoint: Url, role: String, session: String, token: PathBuf },
    /// The agent of a container's host: ECS, and EKS Pod Identity.
    Container { endpoint: Url, authorization: Authorization },
    /// The metadata service of an EC2 instance, version 2.
    Instance { endpoint: Url },
}

/// What a container shows to its agent.
#[derive(Debug)]
enum Authorization {
    None,
    Value(Secret),
    /// Read again for each key: its content changes.
    File(PathBuf),
}

impl Credentials {
    /// Finds keys as other tools of AWS do: `AWS_ACCESS_KEY_ID` and its companions, a role by web identity, the profile
    /// `AWS_PROFILE` (or `default`) of `AWS_SHARED_CREDENTIALS_FILE` (or `~/.aws/credentials`), the role of the container,
    /// the role of the EC2 instance. Asks no service.
    /// Fails if there is none, a file cannot be read, or a variable names a host that gives no keys.
    pub fn find(endpoint: &str, region: &str, variables: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let given = |name: &str| variables(name).filter(|value| !value.is_empty());
        if let Some(key) = access_key(given, "the environment") {
            return Ok(Self::Key(key));
        }
        if let Some(service) = KeyService::web_identity(region, &given)? {
            return Ok(Self::role(service));
        }
        let home = given("HOME").unwrap_or_else(|| "/".to_owned());
        let file = given("AWS_SHARED_CREDENTIALS_FILE")
            .map_or_else(|| Path::new(&home).join(".aws/credentials"), PathBuf::from);
        let profile = given("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        if let Some(key) = profile_key(&file, &profile)? {
            return Ok(Self::Key(key));
        }
        match KeyService::container(&given)? {
            Some(service) => Ok(Self::role(service)),
            None => match KeyService::instance(&given)? {
                Some(service) => Ok(Self::role(service)),
                None => {
                    let fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile to";
                    Err(ConfigError(format!("no access key for {endpoint}\n  fix: {fix} {}", file.display())))
                }
            },
        }
    }

    fn role(service: KeyService) -> Self {
        Self::Role(Arc::new(RoleKeys { service, state: Mutex::default(), fetching: tokio::sync::Mutex::default() }))
    }

    /// Where the keys are from, for messages.
    pub fn source(&self) -> String {
        match self {
            Self::Key(key) => key.source.clone(),
            Self::Role(role) => role.service.place(),
            Self::None => "nowhere: a directory needs none".to_owned(),
        }
    }

    /// The key for a request. Asks a service if the newest key ends soon.
    pub(crate) async fn key(&self) -> Result<AccessKey, KeyError> {
        match self {
            Self::Key(key) => Ok(key.clone()),
            Self::Role(role) => role.key().await,
            Self::None => {
                let fix = "give an access key";
                Err(KeyError { place: self.source(), reason: "a server needs one".to_owned(), fix })
            }
        }
    }

    /// Forgets a key that the server calls expired. Returns whether there may be another.
    pub(crate) fn forget(&self, id: &str) -> bool {
        let Self::Role(role) = self else { return false };
        role.state().newest.take_if(|newest| newest.key.id == id);
        true
    }
}

impl RoleKeys {
    fn state(&self) -> std::sync::MutexGuard<'_, KeyState> {
        // Every change of it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn key(&self) -> Result<AccessKey, KeyError> {
        let valid = || self.state().valid(Timestamp::now());
        if let Some((key, is_due)) = valid() {
            // One request renews it, and the others go on with it.
            let guard = if is_due { self.fetching.try_lock().ok() } else { None };
            if guard.is_some()
                && let Err(error) = self.renew().await
            {
                tracing::warn!("{error}; the last one is still valid");
            }
            return Ok(valid().map_or(key, |(key, _)| key));
        }
        let _guard = self.fetching.lock().await;
        {
            let state = self.state();
            if let Some((key, _)) = state.valid(Timestamp::now()) {
                return Ok(key);
            }
            if let (Some(attempted), Some(failure)) = (state.attempted, &state.failure)
                && attempted.elapsed() < FAILURE_PAUSE
            {
                return Err(failure.clone());
            }
        }
        self.renew().await
    }

    async fn renew(&self) -> Result<AccessKey, KeyError> {
        let late = |_| Err(format!("no answer within {} s", FETCH_LIMIT.as_secs()));
        let fetched = tokio::time::timeout(FETCH_LIMIT, self.service.fetch()).await.unwrap_or_else(late);
        let fetched = fetched.and_then(|fetched| {
            if fetched.expires > Timestamp::now() {
                Ok(fetched)
            } else {
                Err(format!("its key ended at {}: check the clock of this machine", fetched.expires))
            }
        });
        let mut state = self.state();
        state.attempted = Some(Instant::now());
        match fetched {
            Ok(newest) => {
                tracing::debug!("a key of {} is valid until {}", self.service.place(), newest.expires);
                state.failure = None;
                Ok(state.newest.insert(newest).key.clone())
            }
            Err(reason) => {
                let error = KeyError { place: self.service.place(), reason, fix: self.service.fix() };
                state.failure = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl KeyState {
    /// The newest key, if it is valid, and whether to renew it now.
    fn valid(&self, now: Timestamp) -> Option<(AccessKey, bool)> {
        let newest = self.newest.as_ref()?;
        let left = Duration::try_from(newest.expires.duration_since(now)).ok().filter(|left| !left.is_zero())?;
        let pause = RENEWAL_PAUSE.min(left / 4);
        let is_due = left < RENEWAL && self.attempted.is_none_or(|attempted| attempted.elapsed() > pause);
        Some((newest.key.clone(), is_due))
    }
}

impl KeyService {
    fn web_identity(region: &str, given: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        let (Some(token), Some(role)) = (given("AWS_WEB_IDENTITY_TOKEN_FILE"), given("AWS_ROLE_ARN")) else {
            return Ok(None);
        };
        let (variable, domain) = ("AWS_ENDPOINT_URL_STS", if region.starts_with("cn-") { ".cn" } else { "" });
        let endpoint = given(variable).unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com{domain}"));
        Ok(Some(Self::WebIdentity {
            endpoint: service_address(variable, &endpoint, &[])?,
            role,
            session: given("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "ctxbench".to_owned()),
            token: token.into(),
        }))
    }

    fn container(given: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        let (relative, full) = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let endpoint = match (given(relative), given(full)) {
            (Some(path), _) if !path.starts_with('/') => {
                return Err(ConfigError(format!("{relative} does not begin with `/`\n  fix: unset it")));
            }
            (Some(path), _) => service_address(relative, &format!("http://169.254.170.2{path}"), &METADATA_HOSTS)?,
            (None, Some(url)) => service_address(full, &url, &METADATA_HOSTS)?,
            (None, None) => return Ok(None),
        };
        let file = given("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(|file| Authorization::File(file.into()));
        let value = || given("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(|value| Authorization::Value(Secret(value)));
        let authorization = file.or_else(value).unwrap_or(Authorization::None);
        Ok(Some(Self::Container { endpoint, authorization }))
    }

    fn instance(given: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        if given("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let is_ipv6 = given("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").is_some_and(|it| it.eq_ignore_ascii_case("ipv6"));
        let default = if is_ipv6 { "http://[fd00:ec2::254]" } else { "http://169.254.169.254" };
        let variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
        let endpoint = given(variable).unwrap_or_else(|| default.to_owned());
        Ok(Some(Self::Instance { endpoint: service_address(variable, &endpoint, &METADATA_HOSTS)? }))
    }

    fn endpoint(&self) -> &Url {
        match self {
            Self::WebIdentity { endpoint, .. } | Self::Container { endpoint, .. } | Self::Instance { endpoint } => {
                endpoint
            }
        }
    }

    /// Its name and host. The path of a container's agent is as secret as a key.
    fn place(&self) -> String {
        let name = match self {
            Self::WebIdentity { .. } => "the security token service",
            Self::Container { .. } => "the agent of the container's host",
            Self::Instance { .. } => "the metadata service of the EC2 instance",
        };
        format!("{name} ({})", self.endpoint().host_str().unwrap_or_default())
    }

    fn fix(&self) -> &'static str {
        match self {
            Self::WebIdentity { .. } => "check AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE, and the role's trust policy",
            Self::Container { .. } => "check that the task or the service account has a role",
            Self::Instance { .. } => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile to ~/.aws/credentials; on EC2, give the instance a role, and in a container on it, allow 2 hops"
            }
        }
    }

    /// Asks for a new key. Fails with the reason.
    async fn fetch(&self) -> Result<TemporaryKey, String> {
        let endpoint = self.endpoint();
        let http = network::client().dns_resolver(Resolver).http1_only().connect_timeout(CONNECT_LIMIT);
        let http = match self {
            Self::WebIdentity { .. } => http,
            // A proxy is another machine.
            Self::Container { .. } | Self::Instance { .. } => http.no_proxy(),
        };
        let http = if endpoint.scheme() == "http" { http.tls_certs_only([]) } else { http };
        let http = network::build(http).map_err(|error| error.to_string())?;
        match self {
            Self::WebIdentity { role, session, token, .. } => {
                let token = read_token(token)?;
                let form = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role),
                    ("RoleSessionName", session),
                    ("WebIdentityToken", &token),
                ];
                let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
                let request = http.post(endpoint.clone()).body(form);
                let request = request.header("content-type", "application/x-www-form-urlencoded");
                let answer = ask("the role", request).await?;
                let answer = str::from_utf8(&answer).map_err(|_| "its answer is not text")?;
                let field = |name: &str| element(answer, name).map(str::to_owned);
                self.key_of([
                    ("AccessKeyId", field("AccessKeyId")),
                    ("SecretAccessKey", field("SecretAccessKey")),
                    ("SessionToken", field("SessionToken")),
                    ("Expiration", field("Expiration")),
                ])
            }
            Self::Container { authorization, .. } => {
                let token = match authorization {
                    Authorization::None => None,
                    Authorization::Value(token) => Some(token.0.clone()),
                    Authorization::File(file) => Some(read_token(file)?),
                };
                let request = http.get(endpoint.clone());
                let request = match token {
                    Some(token) => request.header("authorization", token),
                    None => request,
                };
                self.key_of_json(&ask("the key", request).await?)
            }
            Self::Instance { .. } => {
                let base = endpoint.as_str().trim_end_matches('/');
                let seconds = ("x-aws-ec2-metadata-token-ttl-seconds", "300");
                let request = http.put(format!("{base}/latest/api/token")).header(seconds.0, seconds.1);
                let token = ask("a token", request.header("content-length", "0")).await?;
                let token = str::from_utf8(&token).unwrap_or_default().trim().to_owned();
                let get = |path: &str| http.get(format!("{base}{path}")).header("x-aws-ec2-metadata-token", &token);
                let path = "/latest/meta-data/iam/security-credentials/";
                let role = ask("the role", get(path)).await?;
                let role = str::from_utf8(&role).unwrap_or_default().trim();
                let is_name = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
                if role.is_empty() || !role.chars().all(is_name) {
                    return Err("the instance has no role".to_owned());
                }
                self.key_of_json(&ask("the key", get(&format!("{path}{role}"))).await?)
            }
        }
    }

    fn key_of_json(&self, answer: &[u8]) -> Result<TemporaryKey, String> {
        // The parser's error may quote the answer.
        let answer: serde_json::Value = serde_json::from_slice(answer).map_err(|_| "its answer is not JSON")?;
        if let Some(code) = answer["Code"].as_str().filter(|code| *code != "Success") {
            let code: String = code.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
            return Err(format!("it answered {code}"));
        }
        let field = |name: &str| answer[name].as_str().map(str::to_owned);
        self.key_of([
            ("AccessKeyId", field("AccessKeyId")),
            ("SecretAccessKey", field("SecretAccessKey")),
            ("Token", field("Token")),
            ("Expiration", field("Expiration")),
        ])
    }

    /// A key of its id, secret, token and end.
    fn key_of(&self, fields: [(&str, Option<String>); 4]) -> Result<TemporaryKey, String> {
        let missing = |name: &str| format!("its answer has no {name}");
        let [id, secret, token, expires] =
            fields.map(|(name, value)| value.filter(|value| !value.is_empty()).ok_or_else(|| missing(name)));
        let expires = expires?.parse().map_err(|_| "its answer has an Expiration that is no time")?;
        let key = AccessKey { id: id?, secret: Secret(secret?), token: Some(Secret(token?)), source: self.place() };
        if key.is_valid() {
            Ok(TemporaryKey { key, expires })
        } else {
            Err("its key has blanks or other characters that a header cannot have".to_owned())
        }
    }
}

/// The address of a service that gives keys. Fails if they, or what it is asked with, could be read in a network.
fn service_address(variable: &str, address: &str, hosts: &[&str]) -> Result<Url, ConfigError> {
    let url = Url::parse(address).ok().filter(|url| url.host_str().is_some());
    let url =
        url.ok_or_else(|| ConfigError(format!("{variable} is not an address\n  fix: unset it, or give a URL")))?;
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(host) || hosts.contains(&host) => Ok(url),
        _ => Err(ConfigError(format!(
            "{variable} names {host}, which would give keys over a connection that is not encrypted\n  fix: use https, or an address of this machine"
        ))),
    }
}

/// The token in a file, which is a link in a Kubernetes pod.
fn read_token(file: &Path) -> Result<String, String> {
    let text = files::read_text(file, DEFINITION);
    let text = text.map_err(|error| format!("the token file {}: {error}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Sends a request, again if the service is busy. `what` is asked for, in messages. Fails with the reason.
async fn ask(what: &str, request: RequestBuilder) -> Result<Bytes, String> {
    let limit: BodyLimit = limits::KEY.within(FETCH_LIMIT);
    let mut waits = WAITS.into_iter();
    loop {
        let sent = request.try_clone().ok_or("the request cannot be repeated")?;
        let response = network::send(sent).await.map_err(|error| format!("it does not answer: {error}"))?;
        let status = response.status();
        if status.is_success() {
            return read_body(response, limit).await.map_err(|error| error.to_string());
        }
        let is_busy = status.as_u16() == 429 || status.is_server_error();
        if let Some(wait) = waits.next().filter(|_| is_busy) {
            tokio::time::sleep(wait).await;
            continue;
        }
        if let Some(redirected) = RedirectError::of(&response) {
            return Err(format!("asked for {what}, {redirected}"));
        }
        let body = read_start(response, limit).await;
        let code = str::from_utf8(&body).ok().and_then(|body| element(body, "Code"));
        let code: String = code.unwrap_or_default().chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        return Err(format!("asked for {what}, it answered {status} {code}").trim_end().to_owned());
    }
}

/// The access key of a profile; `None` without the file or the profile.
fn profile_key(file: &Path, profile: &str) -> Result<Option<AccessKey>, ConfigError> {
    let place = file.display();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ConfigError(format!("cannot read {place}: {error}"))),
    };
    let values = profile_values(&text, profile);
    Ok(access_key(|name| values.get(name).cloned(), &format!("profile {profile} of {place}")))
}

/// The access key in settings that are named as in the environment.
fn access_key(value: impl Fn(&str) -> Option<String>, source: &str) -> Option<AccessKey> {
    Some(AccessKey {
        id: value("AWS_ACCESS_KEY_ID")?,
        secret: Secret(value("AWS_SECRET_ACCESS_KEY")?),
        token: value("AWS_SESSION_TOKEN").map(Secret),
        source: source.to_owned(),
    })
}

/// The settings of one `[profile]` of an ini file, by their names in the environment.
fn profile_values(text: &str, profile: &str) -> BTreeMap<String, String> {
    let mut is_ours = false;
    let mut values = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            is_ours = name.trim() == profile;
        } else if is_ours
            && !line.starts_with(['#', ';'])
            && let Some((name, value)) = line.split_once('=')
        {
            values.insert(name.trim().to_uppercase(), value.trim().to_owned());
        }
    }
    values
}
