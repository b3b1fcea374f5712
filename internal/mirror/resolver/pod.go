package resolver

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// containerd shows a pod's own credentials (its imagePullSecrets, or what a credential provider of
// the cloud gave) only to who asks for them. So a source that denies an image makes the resolver
// ask, as registries with a token server do, and be that server:
//
//	containerd ─► manifest, with the node's token          ◄─ 401, Bearer realm="http://…/token"
//	containerd ─► /token, with the node's token and the    ◄─ a handle for that repository
//	              pod's user and password
//	containerd ─► manifest, layers …, with the handle
//
// What a handle stands for is shown to the source and to nobody else, and lives in memory only. One
// for nobody (the pod has no credentials) makes the next answer the final one.
type podAccess struct {
	registry, repository string
	credential           mirror.Credential
}

const (
	podTokenPath = "/token"
	podPrefix    = "pod-"
	// podRoom is for as many pulls with credentials as a node can have under way.
	podRoom = 1024
	// podLife is how long containerd uses a handle. It is known for twice as long, for what is
	// under way then.
	podLife = time.Hour
	// maxForm is more than any cloud's password takes.
	maxForm = 64 << 10
)

// authenticate says whether a request has the node's token, or else which handle it has. The time
// that it takes tells nothing about the token: digests are compared, and always whole.
func (r *Resolver) authenticate(request *http.Request) (trusted bool, handle string) {
	values := request.Header[mirror.TokenHeader]
	if len(values) != 1 {
		return false, ""
	}
	sum := sha256.Sum256([]byte(values[0]))
	if subtle.ConstantTimeCompare(sum[:], r.token[:]) == 1 {
		return true, ""
	}
	if handle, ok := strings.CutPrefix(values[0], "Bearer "); ok && strings.HasPrefix(handle, podPrefix) {
		return false, handle
	}
	return false, ""
}

// access is what a handle stands for, or nil if that is not known, or is for another repository.
func (r *Resolver) access(handle string, t target) *podAccess {
	found, ok := r.pods.get(handle)
	if !ok || found.registry != t.registry || found.repository != t.repository {
		return nil
	}
	return &found
}

// challengePod asks for the pod's credentials, and says what was wrong with the handle that came.
func challengePod(w http.ResponseWriter, request *http.Request, t target, wrong string) {
	realm := url.URL{Scheme: "http", Host: request.Host, Path: podTokenPath}
	challenge := "Bearer realm=" + strconv.Quote(realm.String()) + ",service=" + strconv.Quote(t.registry) +
		",scope=" + strconv.Quote(pullScope(t.repository))
	if wrong != "" {
		challenge += ",error=" + strconv.Quote(wrong)
	}
	w.Header().Set("WWW-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, codeUnauthorized, "the source wants credentials")
}

// pullScope is how token servers call the right to pull from a repository.
func pullScope(repository string) string { return "repository:" + repository + ":pull" }

// issue gives a handle for the pod's credentials, which containerd posts as OAuth has it; one
// without any comes by GET.
func (r *Resolver) issue(w http.ResponseWriter, request *http.Request) {
	request.Body = http.MaxBytesReader(w, request.Body, maxForm)
	if err := request.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, codeUnsupported, "the form can't be read")
		return
	}
	form := request.Form
	repository, ok := strings.CutPrefix(form.Get("scope"), "repository:")
	repository, pull := strings.CutSuffix(repository, ":pull")
	if !ok || !pull || len(form["scope"]) != 1 || mirror.CheckName(form.Get("service"), repository) != nil {
		refuse(w, http.StatusBadRequest, codeUnsupported, "a token is for pulling from one repository")
		return
	}
	access := podAccess{registry: form.Get("service"), repository: repository}
	if request.Method == http.MethodPost {
		access.credential = mirror.Credential{Username: form.Get("username"), Password: form.Get("password"),
			IdentityToken: form.Get("refresh_token")}
	}
	handle := podPrefix + rand.Text()
	r.pods.put(handle, access, 2*podLife)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": handle, "access_token": handle,
		"expires_in": int(podLife / time.Second)})
}

// credential is what a place is shown: the pod's own if it is the source and the pod has one, else
// what the cluster's pull secret has for it.
func (p *pull) credential(at mirror.Pull) mirror.Credential {
	if at.Source && p.pod != nil && p.pod.credential != (mirror.Credential{}) {
		return p.pod.credential
	}
	found, _ := p.state.secret.For(at.Host, at.Repository)
	return found
}
