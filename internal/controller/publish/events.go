package publish

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons of events about the ConfigMap or the Secret of a revision.
const (
	reasonPublished = "ServicesPublished"
	// reasonReplaced: the object's content didn't match its name.
	reasonReplaced = "ServicesReplaced"
	// reasonRetired: an object of an unused or forged revision was deleted.
	reasonRetired = "ServicesRetired"
)

type recorder struct{ events events.EventRecorder }

func (r recorder) published(c client.Object, how string) {
	if how == "create" {
		r.events.Eventf(c, nil, corev1.EventTypeNormal, reasonPublished, "Publish",
			"A part of the desired state of nodes is published.")
		return
	}
	r.events.Eventf(c, nil, corev1.EventTypeWarning, reasonReplaced, "Publish",
		"The content was not what the name says; it is published again.")
}

func (r recorder) retired(c client.Object, why string) {
	r.events.Eventf(c, nil, corev1.EventTypeNormal, reasonRetired, "Retire", "It is removed: %s.", why)
}
