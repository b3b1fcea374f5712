package main

import (
	"fmt"
	"testing"
)

func TestWhereDaemonsFindThePayloadServer(t *testing.T) {
	t.Parallel()
	pod := map[string]string{podAddress: "10.128.0.7", serviceAddress: "172.30.4.5"}
	for name, c := range map[string]struct {
		flag        string
		environment map[string]string
		want        string
	}{
		"the pod, then the Service": {environment: pod, want: "[10.128.0.7:9999 172.30.4.5:9183]"},
		"the pod alone": {environment: map[string]string{podAddress: "fd00::7"},
			want: "[[fd00::7]:9999]"},
		"the pod in IPv4 first, which nodes may have alone": {environment: map[string]string{
			podAddresses: "fd00::5,10.1.2.3", podAddress: "fd00::5", serviceAddress: "fd01::9"},
			want: "[10.1.2.3:9999 [fd00::5]:9999 [fd01::9]:9183]"},
		"the pod once": {environment: map[string]string{podAddresses: "10.1.2.3,fd00::5", podAddress: "10.1.2.3"},
			want: "[10.1.2.3:9999]"},
		"a pod in IPv6 alone": {environment: map[string]string{podAddresses: "fd00::5,fd00::6"},
			want: "[[fd00::5]:9999]"},
		"addresses, one of them invalid": {environment: map[string]string{podAddresses: "fd00::5,here"},
			want: "error"},
		"nowhere":            {want: "[]"},
		"an invalid address": {environment: map[string]string{podAddress: "here"}, want: "error"},
		"what the flag says": {flag: "payload.example.com, 192.0.2.1:443,[fd00::1]:80 fd00::2",
			environment: pod, want: "[payload.example.com:9999 192.0.2.1:443 [fd00::1]:80 [fd00::2]:9999]"},
		"a flag without a port after colon": {flag: "payload server:", want: "error"},
		"a flag with port 0":                {flag: "payload server:0", want: "error"},
		"a flag with a port alone":          {flag: ":9183", want: "error"},
		"a flag with too large a port":      {flag: "payload server:70000", want: "error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lookup := func(key string) (string, bool) { v, ok := c.environment[key]; return v, ok }
			slots, err := advertised(options{payloadAdvertise: c.flag, environment: lookup}, 9999)
			got := fmt.Sprint(slots)
			if err != nil {
				got = "error"
			}
			if got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
		})
	}
}
