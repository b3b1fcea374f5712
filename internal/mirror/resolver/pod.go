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

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// podAccess contains a repository, and a pod's own credential for it. The resolver identifies each podAccess by a
// random token, the handle. containerd sends a pod's own credentials (its imagePullSecrets, or credentials from a
// credential provider of the cloud) only if a registry asks for them. So if a source denies an image, the resolver acts
// as a registry with a token server, whose tokens are handles:
//
//	containerd ─► manifest, with the node's token          ◄─ 401, Bearer realm="http://…/token"
//	containerd ─► /token, with the node's token and the    ◄─ a handle for that repository
//	              pod's user and password
//	containerd ─► manifest, layers …, with the handle
//
// The resolver sends the credential of a handle only to the source, and stores it only in memory. If the pod has no
// credentials, containerd gets a handle without credentials. If the source denies the image again, the pull fails.
type podAccess struct {
	image      mirror.Location
	credential mirror.Credential
}

const (
	podTokenPath = "/token"
	podPrefix    = "pod-"
	// podRoom is the maximum number of handles. It is enough for all concurrent pulls with credentials on a node.
	podRoom = 1024
	// podLife is how long containerd uses a handle. The resolver stores a handle twice as long, because a pull may
	// still be running at the end of that time.
	podLife = time.Hour
	// maxForm is the maximum size of a request for a handle. It is more than the password of any cloud needs.
	maxForm = 64 << 10
)

// authenticate reports whether a request has the node's token. If not, it returns the handle in the request, or "".
// authenticate compares digests instead of tokens, so that the time of the comparison reveals nothing about the token.
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

// access returns the podAccess of a handle, or nil if the handle is unknown or isn't for the target's repository.
func (r *Resolver) access(handle string, t target) *podAccess {
	found, ok := r.pods.get(handle)
	if !ok || found.image != t.image {
		return nil
	}
	return &found
}

// challengePod asks containerd for the pod's credentials. `wrong` is the error code for a refused handle, or empty.
func challengePod(w http.ResponseWriter, request *http.Request, t target, wrong string) {
	realm := url.URL{Scheme: "http", Host: request.Host, Path: podTokenPath}
	challenge := "Bearer realm=" + strconv.Quote(realm.String()) + ",service=" + strconv.Quote(t.image.Host) +
		",scope=" + strconv.Quote(pullScope(t.image.Path))
	if wrong != "" {
		challenge += ",error=" + strconv.Quote(wrong)
	}
	w.Header().Set("WWW-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, transport.UnauthorizedErrorCode, "the source wants credentials")
}

// pullScope returns the scope that token servers use for pulls from a repository.
func pullScope(repository string) string { return "repository:" + repository + ":pull" }

// issue returns a handle for the pod's credentials. containerd sends these credentials in a POST request, as in OAuth.
// If the pod has no credentials, containerd sends a GET request.
func (r *Resolver) issue(w http.ResponseWriter, request *http.Request) {
	request.Body = http.MaxBytesReader(w, request.Body, maxForm)
	if err := request.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, transport.UnsupportedErrorCode, "the form can't be read")
		return
	}
	form := request.Form
	repository, ok := strings.CutPrefix(form.Get("scope"), "repository:")
	repository, pull := strings.CutSuffix(repository, ":pull")
	image, err := mirror.ParseRepository(form.Get("service"), repository)
	if !ok || !pull || len(form["scope"]) != 1 || err != nil {
		refuse(w, http.StatusBadRequest, transport.UnsupportedErrorCode, "a token is for pulling from one repository")
		return
	}
	access := podAccess{image: image}
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

// credential returns the credential for a source. At the image's own repository, the pod's credential takes precedence.
func (p *pull) credential(at mirror.Location) mirror.Credential {
	if at == p.target.image && p.pod != nil && p.pod.credential != (mirror.Credential{}) {
		return p.pod.credential
	}
	found, _ := p.state.PullSecret.For(at)
	return found
}
