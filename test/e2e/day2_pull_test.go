package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/registry"
)

// pull pulls an image as containerd on a host does: it follows hosts.toml to the resolver, and downloads the manifest
// and every blob that the manifest names.
func pull(ctx context.Context, h *fleet.Host, host, repository, reference string) error {
	token, err := resolverToken(h)
	if err != nil {
		return err
	}
	node := h.Machine.Host().Network
	client := &http.Client{Timeout: soon, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, err
			}
			return node.Dial(ctx, to)
		},
	}}
	get := func(kind, reference string) ([]byte, error) {
		url := fmt.Sprintf("http://127.0.0.1:%d/v2/%s/%s/%s?ns=%s", contract.MirrorPort, repository, kind, reference,
			host)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, err
		}
		request.Header.Set(mirror.TokenHeader, token)
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(response.Body)
		err = errors.Join(err, response.Body.Close())
		if response.StatusCode != http.StatusOK {
			err = errors.Join(err, fmt.Errorf("pulling %s/%s %s: %s: %.300s", host, repository, reference,
				response.Status, content))
		}
		if digest := registry.Digest(content); err == nil && strings.HasPrefix(reference, "sha256:") &&
			digest != reference {
			err = fmt.Errorf("%s has the digest %s", reference, digest)
		}
		return content, err
	}
	manifest, err := get("manifests", reference)
	if err != nil {
		return err
	}
	var parts struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err = json.Unmarshal(manifest, &parts); err != nil {
		return err
	}
	for _, part := range append(parts.Layers, parts.Config) {
		if _, err = get("blobs", part.Digest); err != nil {
			return err
		}
	}
	return nil
}

// follows returns an error unless a host's resolver contacts a mirror for an image of a registry. No registry has the
// image.
func follows(ctx context.Context, h *fleet.Host, source, mirror string) error {
	if err := pull(ctx, h, source, "good/app", registry.Digest(nil)); err == nil || !strings.Contains(err.Error(), mirror) {
		return fmt.Errorf("%s does not ask %s for an image of %s: %w", h.Name, mirror, source, err)
	}
	return nil
}

// hostsFile returns the hosts.toml of a host that applies to every registry.
func hostsFile(h *fleet.Host) (string, error) {
	content, err := winos.ReadFile(h.Machine.Host().Files, contract.PathHosts)
	return string(content), err
}

func resolverToken(h *fleet.Host) (string, error) {
	content, err := hostsFile(h)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(mirror.TokenHeader + ` = \['([^']+)'\]`).FindStringSubmatch(content)
	if found == nil {
		return "", fmt.Errorf("hosts.toml has no token: %s", content)
	}
	return found[1], nil
}
