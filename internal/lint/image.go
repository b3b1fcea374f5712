package lint

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Offer lists the platforms that an image supports.
type Offer struct {
	Systems []string
	// Builds are the Windows builds of the image's variants, such as 20348.
	Builds []int
}

// Images finds the platforms that an image supports. Check calls it once for each image, from several goroutines.
type Images func(ctx context.Context, image string) (Offer, error)

const atOnce = 8

// checkImages reports images that don't run on the nodes of their pod, and images that couldn't be inspected.
func checkImages(p *pod, say report) {
	p.containers(func(path string, container *corev1.Container) {
		say := func(severity Severity, message, fix string) {
			say(severity, path+".image", container.Image+" "+message, fix)
		}
		answer := p.answers[container.Image]
		if answer.err != nil {
			say(Warning, fmt.Sprintf("could not be inspected: %v", answer.err),
				"Check its name, and your right to pull it.")
			return
		}
		p.judge(container, answer.offer, say)
	})
}

type answer struct {
	offer Offer
	err   error
}

func ask(ctx context.Context, templates []Template, images Images) map[string]answer {
	var mu sync.Mutex
	answers := map[string]answer{}
	asked := sets.New[string]()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range templates {
		p := pod{Template: &templates[i]}
		p.containers(func(_ string, c *corev1.Container) {
			if asked.Has(c.Image) {
				return
			}
			asked.Insert(c.Image)
			group.Go(func() error {
				offer, err := images(ctx, c.Image)
				mu.Lock()
				defer mu.Unlock()
				answers[c.Image] = answer{offer, err}
				return nil
			})
		})
	}
	_ = group.Wait()
	return answers
}

// judge reports a problem if an image has no variant for the pod's operating system or for the builds of its nodes.
func (p *pod) judge(c *corev1.Container, offer Offer, say func(Severity, string, string)) {
	windows := slices.Contains(offer.Systems, string(systemWindows))
	switch {
	case p.system == systemWindows && !windows && len(offer.Systems) > 0:
		say(Error, "has no variant for Windows, only for "+strings.Join(offer.Systems, ", "), "Use a Windows image.")
	case p.system != systemWindows && windows && len(offer.Systems) == 1:
		say(Error, "runs on Windows only, and the pod does not select Windows",
			"Set spec.os.name to windows and the node selector kubernetes.io/os: windows.")
	case p.system == systemWindows && len(offer.Builds) > 0 && !hostProcess(&p.Spec, c):
		p.judgeBuilds(offer.Builds, say)
	}
}

// judgeBuilds reports the builds of nodes that can't run the image. Don't call it for HostProcess containers: they are
// not isolated, so they start on every build.
func (p *pod) judgeBuilds(offered []int, say func(Severity, string, string)) {
	nodes := p.builds()
	unfit := fits(offered, nodes)
	if len(unfit) == 0 {
		return
	}
	severity := Warning
	if len(unfit) == len(nodes) {
		severity = Error
	}
	say(severity, fmt.Sprintf("is made for Windows build %s and does not start on nodes of build %s",
		numbers(offered), numbers(unfit)),
		"Use an image for that build, or select nodes by "+corev1.LabelWindowsBuild+".")
}

// builds returns the builds of the nodes that the pod may run on, according to its node selector and RuntimeClass.
func (p *pod) builds() []int {
	wanted := p.Spec.NodeSelector[corev1.LabelWindowsBuild]
	if wanted == "" && p.Spec.RuntimeClassName != nil {
		wanted = p.cluster.RuntimeClasses[*p.Spec.RuntimeClassName]
	}
	var all []int
	for _, build := range p.cluster.Builds {
		n := buildNumber(build)
		if n != 0 && (wanted == "" || buildNumber(wanted) == n) && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

func numbers(all []int) string {
	var words []string
	for _, n := range all {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ", ")
}
