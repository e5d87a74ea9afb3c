// A real OpenID Connect provider for tests: oidc-provider with a form in place of accounts.
// The user types the ID of an account and its claims as JSON: {"role": "operator", "tenant": "acme"}.
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const claimsIn = process.argv[2]; // id_token or userinfo
const accounts = new Map();
const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'console', client_secret: 'a secret of the client', redirect_uris: ['http://127.0.0.1/login/oidc/callback'],
    grant_types: ['authorization_code'], response_types: ['code'],
  }],
  claims: { openid: ['sub', 'role', 'tenant', 'groups'], profile: ['name'], email: ['email'] },
  conformIdTokenClaims: claimsIn === 'userinfo',
  features: { devInteractions: { enabled: false } },
  pkce: { required: () => true },
  cookies: { keys: ['a key for tests'] },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...accounts.get(id) }) }),
  loadExistingGrant: async (ctx) => {
    const grant = new ctx.oidc.provider.Grant({ clientId: 'console', accountId: ctx.oidc.session.accountId });
    grant.addOIDCScope('openid profile email');
    await grant.save();
    return grant;
  },
});

// The API's port is not known yet.
provider.Client.prototype.redirectUriAllowed = (uri) => /^http:\/\/127\.0\.0\.1:\d+\/login\/oidc\/callback$/.test(uri);

const page = `<!doctype html><title>Provider</title><form method="post">
<label>Account <input name="account"></label><label>Claims <input name="claims" value="{}"></label>
<button name="verb" value="sign in">Sign in</button><button name="verb" value="deny">Deny</button></form>`;

const serve = provider.callback();
server.on('request', async (request, response) => {
  if (!request.url.startsWith('/interaction/')) return serve(request, response);
  if (request.method === 'GET') return response.setHeader('content-type', 'text/html').end(page);
  let body = '';
  for await (const part of request) body += part;
  const form = new URLSearchParams(body);
  if (form.get('verb') === 'deny') {
    return provider.interactionFinished(request, response, { error: 'access_denied' });
  }
  accounts.set(form.get('account'), JSON.parse(form.get('claims')));
  return provider.interactionFinished(request, response, { login: { accountId: form.get('account'), remember: false } });
});
console.log(issuer);
